"""The parts that all families of rows share: the run, one Spark session, and the stores that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tidelog
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.processes.fresh import Fresh

STREAMS, BIG, SMALL_STREAMS, SMALL = 100, 2_000_000, 100_000, 10
BY_HAND: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}
RUNS, QUICK_RUNS = 4, 1  # after the first, in which Java compiles


@dataclass
class Setting:
    """Passed to every family.

    spark     a process with a Spark session (session.py) at local[2]
    beside    rates of baselines that one family has measured, for the next ones
    """

    bench: Bench
    spark: Fresh
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How often a figure is measured."""
        return QUICK_RUNS if self.bench.quick else RUNS

    @property
    def entries(self) -> int:
        """Entries in the store `big`."""
        return self.bench.scaled(BIG)

    @property
    def streams(self) -> int:
        """Streams in the store `small`."""
        return self.bench.scaled(SMALL_STREAMS)

    @property
    def shown(self) -> str:
        """The store `big`, for notes."""
        return f"{self.entries:,} entries in {STREAMS} streams"

    def big(self) -> Path:
        """A store with a snapshot: some long streams."""
        return self._store("spark-big", STREAMS, self.entries // STREAMS)

    def small(self) -> Path:
        """A store with a snapshot: many streams of ten entries."""
        return self._store("spark-small", self.streams, SMALL)

    def _store(self, name: str, streams: int, each: int) -> Path:
        return self.bench.once(name, lambda path: store(path, streams, each))


Family = Callable[[Setting], Iterator[Any]]


def name_of(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number:06d}"


def fields(count: int) -> list[dict[str, Any]]:
    """Entries of three fields, with about 70 bytes of values."""
    return [
        {"user": f"{at:06d}", "payload": f"{at * 7919:032x}", "tag": f"{at * 104729:030x}"}
        for at in range(count)
    ]


def store(directory: Path, streams: int, each: int) -> Path:
    """A store with a snapshot: `streams` streams of `each` entries."""
    path = directory / "store"
    with tidelog.open(path, **BY_HAND) as db:
        for number in range(streams):
            add(db, number, each)
        db.snapshot()
    return path


def add(db: Any, number: int, count: int) -> None:
    """Add entries to a stream, in batches."""
    for start in range(0, count, BATCH):
        db.xadd_many(name_of(number), fields(min(count - start, BATCH)))
