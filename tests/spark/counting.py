"""Batch reads without Spark, whose reads of the file are counted: those of the plan, and of each of its partitions."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import NamedTuple

from tidelog.aof.identity import DATA
from tidelog.snapshot.place import Place, place_of
from tidelog.snapshot.sealed import open_sealed
from tidelog.spark.source.batch import entries
from tidelog.spark.source.batch.plan import parts
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse


def read_of(path: str, **options: str) -> Read:
    """The batch read of a store or snapshot, as Spark would make it."""
    parsed = parse({"path": path, **options})
    return read(parsed, resolve(parsed.paths, parsed.snapshot), columns_of(parsed))


class Counted(NamedTuple):
    """The cost of a read.

    reads        of the place: system calls, or requests to an object store
    nbytes       that they got
    file_bytes   size of the file with the data
    """

    entries: int
    reads: int
    nbytes: int
    file_bytes: int


def counted(path: str, stream: str | None = None) -> Counted:
    """Read all columns of one stream, or of all, and count the reads of the planner and of every task."""
    planned = read_of(path, **({} if stream is None else {"streams": stream}))
    (snapshot,) = planned.paths
    place = _CountedPlace(place_of(snapshot))
    with closing(open_sealed(place)) as sealed:
        found = parts(sealed, planned.wanted, planned.options)
        file_bytes = place.size(DATA)
    rows, reads, nbytes = 0, place.reads, place.nbytes
    for part in found:
        place = _CountedPlace(place_of(snapshot))
        with closing(open_sealed(place)) as sealed:
            nodes = entries.nodes(sealed.rows, part, planned.wanted.span)
            rows += sum(len(batch) for batch in planned.maker().of(nodes))
        reads, nbytes = reads + place.reads, nbytes + place.nbytes
    return Counted(rows, reads, nbytes, file_bytes)


class _CountedPlace:
    """A `Place` that counts."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.name, self.least = place.name, place.least
        self.reads = self.nbytes = 0

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        data = self._place.read_at(file, offset, nbytes)
        self.reads += 1
        self.nbytes += len(data)
        return data

    def size(self, file: str) -> int:
        return self._place.size(file)

    def names(self) -> list[str]:
        return self._place.names()

    def hold(self) -> AbstractContextManager[None]:
        return self._place.hold()

    def close(self) -> None:
        self._place.close()
