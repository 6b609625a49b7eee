"""LMDB, with its syncs, without that of the meta page, and without any.

Its manual (lmdb.h, mdb_env_open) says:

    sync        transactions are durable
    MDB_NOMETASYNC   a system crash may undo the last committed transaction; the database stays intact
    MDB_NOSYNC  a system crash can corrupt the database or lose the last transactions
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import lmdb

from tidelog.crash.model import Contents
from tidelog.crash.oracle import Kind
from tidelog.crash.subjects.subject import Opened, Subject, admits
from tidelog.crash.trace import Unit

MAP_BYTES: Final = 1 << 24


class Lmdb:
    """One combination of flags. Never `writemap`: what is written through a mapping has no order that can be seen."""

    forked = True

    def __init__(
        self,
        setting: str,
        promise: str,
        admitted: Mapping[str, frozenset[Kind]],
        *,
        sync: bool = True,
        metasync: bool = True,
    ) -> None:
        self.name = f"lmdb-{setting}"
        self.promise = promise
        self.admitted = admitted
        self._sync = sync
        self._metasync = metasync

    def missing(self) -> str:
        return ""

    @contextmanager
    def open(self, root: Path) -> Iterator[Opened]:
        with closing(
            lmdb.open(str(root), map_size=MAP_BYTES, sync=self._sync, metasync=self._metasync)
        ) as environment:
            yield _Opened(environment)


class _Opened:
    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment

    def do(self, unit: Unit) -> None:
        with self._environment.begin(write=True) as transaction:
            for name, key, *value in unit:
                if name == "set":
                    transaction.put(key, *value)
                else:
                    transaction.delete(key)

    def contents(self) -> Contents:
        with self._environment.begin() as transaction:
            return dict(transaction.cursor())


SUBJECTS: Final[tuple[Subject, ...]] = (
    Lmdb("sync", "durable", admits()),
    Lmdb("nometasync", "intact; the last may be undone", admits(Kind.LOST), metasync=False),
    Lmdb(
        "nosync",
        "may be corrupted, the last may be lost",
        admits(Kind.LOST, Kind.WRONG, Kind.REFUSED, Kind.DIED),
        sync=False,
    ),
)
