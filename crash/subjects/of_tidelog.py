"""tidelog itself, so that the table has it beside the others, recorded by the same library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.api.opening import open_store
from tidelog.api.sync import Store
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Kind
from tidelog.crash.served import contents_of
from tidelog.crash.subjects.subject import Opened, Subject, admits
from tidelog.crash.trace import Unit


class Tidelog:
    """One fsync policy."""

    forked = True

    def __init__(self, fsync: str, promise: str, admitted: Mapping[str, frozenset[Kind]]) -> None:
        self.name = f"tidelog-{fsync}"
        self.promise = promise
        self.admitted = admitted
        self._fsync = fsync

    def missing(self) -> str:
        return ""

    @contextmanager
    def open(self, root: Path) -> Iterator[Opened]:
        with open_store(root / "store", fsync=self._fsync) as db:
            yield _Opened(db)


class _Opened:
    def __init__(self, db: Store) -> None:
        self._db = db

    def do(self, unit: Unit) -> None:
        with self._db.pipeline(transaction=True) as pipe:
            for name, key, *value in unit:
                if name == "set":
                    pipe.set(key, *value)
                else:
                    pipe.delete(key)
            pipe.execute()

    def contents(self) -> Contents:
        return contents_of(self._db)


SUBJECTS: Final[tuple[Subject, ...]] = (
    Tidelog("always", "durable", admits()),
    Tidelog("everysec", "the last second may be lost", admits(Kind.LOST)),
)
