"""Large stores, closed after a checkpoint. Each is made once per run, in a separate process, for all subjects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import Opened

SAMPLES = 10_000
BEHIND = 1_000  # undelivered entries after the pending ones


@dataclass
class Stored:
    """The path to open, and IDs of some entries (or pending ones), drawn evenly, in random order."""

    path: Path
    ids: list[str]


def sensor_store(bench: Bench, entries: int) -> Stored:
    """Readings of a sensor in one stream, all of them waiting for the group."""

    def make(directory: Path) -> Stored:
        path = directory / "store"
        with Fresh(Opened, path) as fresh:
            ids = fresh.call("fill", entries, SAMPLES)
            fresh.call("checkpoint")
        return Stored(path, ids)

    return bench.once(f"{entries}-entries", make)


def pending_store(bench: Bench, pending: int) -> Stored:
    """A group with so many delivered and unacknowledged entries."""

    def make(directory: Path) -> Stored:
        path = directory / "store"
        with Fresh(Opened, path) as fresh:
            fresh.call("add", pending + BEHIND)
            ids = fresh.call("deliver", pending, min(SAMPLES, pending))
            fresh.call("checkpoint")
        return Stored(path, ids)

    return bench.once(f"{pending}-pending", make)
