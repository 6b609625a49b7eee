"""Batch reads without Spark: how long a plan takes, and which reads of the file a plan and its partitions cost."""

from __future__ import annotations

import os
import time
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


class Planning:
    """A process that plans. It is run by processes/fresh.py."""

    def plan(self, path: str) -> dict[str, float]:
        """Seconds of a plan, and the number of its partitions."""
        planned = read_of(path)
        start = time.perf_counter()
        found = len(planned.parts())
        return {"seconds": time.perf_counter() - start, "parts": found}

    def close(self) -> None: ...


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


def read_bytes() -> int:
    """Bytes that this process has read so far, from files and pipes, cached or not."""
    with open(f"/proc/{os.getpid()}/io", "rb") as io:
        return int(io.readline().split()[1])
