"""SQLite by Python's sqlite3, with a write-ahead log or a rollback journal.

Its manual (https://sqlite.org/pragma.html#pragma_synchronous) says:

    WAL, FULL       transactions are durable
    WAL, NORMAL     consistent; a committed transaction might roll back after a power loss
    DELETE, EXTRA   durable also if a power loss follows closely: the directory is synced after the journal is removed
    DELETE, FULL    not corrupted by a power loss; without the sync of EXTRA, the last commit may roll back
    DELETE, NORMAL  on an older file system, a power loss at the wrong time could corrupt the database
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tidelog.crash.model import Contents
from tidelog.crash.oracle import Kind
from tidelog.crash.subjects.subject import Damaged, Opened, Subject, admits
from tidelog.crash.trace import Unit

FILE: Final = "store.db"


class Sqlite:
    """One journal mode and one `synchronous`."""

    forked = True

    def __init__(
        self, journal: str, synchronous: str, promise: str, admitted: Mapping[str, frozenset[Kind]]
    ) -> None:
        self.name = f"sqlite3-{journal}-{synchronous}"
        self.promise = promise
        self.admitted = admitted
        self._pragmas = (f"journal_mode = {journal}", f"synchronous = {synchronous}")

    def missing(self) -> str:
        return ""

    @contextmanager
    def open(self, root: Path) -> Iterator[Opened]:
        with closing(sqlite3.connect(root / FILE, isolation_level=None)) as db:
            for pragma in self._pragmas:
                db.execute(f"PRAGMA {pragma}").fetchall()
            db.execute("CREATE TABLE IF NOT EXISTS stored (key BLOB PRIMARY KEY, value BLOB)")
            yield _Opened(db)


class _Opened:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def do(self, unit: Unit) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for name, key, *value in unit:
            if name == "set":
                self._db.execute("INSERT OR REPLACE INTO stored VALUES (?, ?)", (key, *value))
            else:
                self._db.execute("DELETE FROM stored WHERE key = ?", (key,))
        self._db.execute("COMMIT")

    def contents(self) -> Contents:
        (said,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if said != "ok":
            raise Damaged(f"integrity_check says: {said}")
        return dict(self._db.execute("SELECT key, value FROM stored"))


SUBJECTS: Final[tuple[Subject, ...]] = (
    Sqlite("wal", "full", "durable", admits()),
    Sqlite("wal", "normal", "consistent; the last may roll back", admits(Kind.LOST)),
    Sqlite("delete", "extra", "durable", admits()),
    Sqlite("delete", "full", "consistent; the last may roll back", admits(Kind.LOST)),
    Sqlite(
        "delete",
        "normal",
        "may be corrupted on older file systems",
        admits(Kind.LOST, Kind.WRONG, Kind.REFUSED, Kind.DIED),
    ),
)
