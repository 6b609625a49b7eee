"""Delayed jobs: put and worked off beside jobs that are due at once, 100 bytes each. The clock is moved by hand, so the
jobs become due without waiting. A backlog of a million: its memory, and the open after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any

import tidelog
from bench.figure import OURS, Bound, Figure
from bench.ours import Jobs
from bench.race import WALL, each, medians
from bench.run import ALWAYS, EVERYSEC, Run
from bench.worker import Worker

JOBS = 1_000_000
FILLED = 10_000  # at once
BUDGET = 32 << 20
HOUR = 3600
AT_ONCE = "due at once"
TIMES, QUICK_TIMES = 7, 3
MIB = 1 << 20


def rows(run: Run) -> Iterator[Figure]:
    with run.sides(Jobs, "TEXT", EVERYSEC, moved=True, queues={"p": {}, "d": {}, "s": {}}) as ours:
        many = _pair(ours, "batches_and_forget", {"delay": HOUR}, quantum=1_000)
        single = _pair(ours, "add_and_forget", {"within": HOUR})
        by_hundred = _pair(ours, "take", {"delay": HOUR}, quantum=100, at_once=100)
        scattered = _pair(ours, "take", {"within": HOUR}, quantum=100, at_once=100)
        yield _figure("put_many", run.race(many), 0.7, "one delay")
        yield _figure("put one", run.race(single), 0.7, "everysec, random delays")
        yield _figure("consume and ack by 100", run.race(by_hundred), 0.5, "one delay")
        rates = run.race(scattered)
        yield _figure("consume and ack by 100, scattered", rates, 0.5, "random delays")
    with run.sides(Jobs, "TEXT", ALWAYS, queues={"p": {}, "d": {}}) as ours:
        rates = run.race(_pair(ours, "add_and_forget", {"delay": HOUR}), clock=WALL)
        yield _figure("put one, always", rates, 0.7, "one delay")
    yield from _at_rest(run)


def _pair(ours: list[Worker], method: str, put: dict[str, Any], **options: Any) -> list[Any]:
    """Delayed jobs and plain ones, in queues of their own."""
    return [
        *each(ours, method, name="delayed", queue="d", **options, **put),
        *each(ours, method, name=AT_ONCE, queue="p", **options),
    ]


def _figure(what: str, rates: dict[str, Any], least: float, note: str) -> Figure:
    name, target = f"delayed jobs: {what}", Bound(least, AT_ONCE)
    return Figure.of(name, "/s", rates, target, note=note, measured="delayed")


class Backlog:
    """A process that fills a queue, or opens such a store."""

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/store"
        self._open(f"{directory}/warm")  # imports

    def put(self, count: int, delayed: bool) -> None:
        """Put `count` jobs, due in an hour or at once."""
        options = {"delay": HOUR} if delayed else {}
        with tidelog.open(self._path, fsync=EVERYSEC, memory_budget=BUDGET) as db:
            queue: Any = db.queue("jobs", codec="bytes")
            for at in range(0, count, FILLED):
                queue.put_many([b"x" * 100] * min(FILLED, count - at), **options)

    def opened(self) -> list[float]:
        """Milliseconds of the open, and of the first fetch, which finds nothing due."""
        return self._open(self._path)

    def _open(self, path: str) -> list[float]:
        start = perf_counter()
        with tidelog.open(path, fsync=EVERYSEC, memory_budget=BUDGET) as db:
            opened = perf_counter()
            queue: Any = db.queue("jobs", codec="bytes")
            if queue.get("worker-1", block=0) is not None:
                raise RuntimeError("a job is due")
            return [(opened - start) * 1000, (perf_counter() - opened) * 1000]

    def close(self) -> None: ...


def _at_rest(run: Run) -> Iterator[Figure]:
    """A million jobs that nobody works on: the memory of the process, and the open after a restart."""
    jobs = run.scaled(JOBS)
    grown: dict[tuple[str, int], list[float]] = {}
    with (
        run.sides(Backlog, name=AT_ONCE) as plain,
        run.sides(Backlog) as delayed,
        run.sides(Backlog, name="an empty store") as empty,
    ):
        for worker in [*plain, *delayed]:
            worker.peak()
            before = worker.anonymous()
            worker.call("put", jobs, worker.name == OURS)
            grown[worker.name, worker.version] = [(worker.peak() - before) / MIB]
        yield Figure.of(
            "delayed jobs: memory of a backlog, memory_budget=32 MiB",
            "MiB",
            medians(grown),
            Bound(1.5, AT_ONCE, most=True),
            note=f"{jobs:,} jobs; the most of RssAnon beyond the process before",
        )
        times = QUICK_TIMES if run.quick else TIMES

        def measure(worker: Worker) -> dict[str, float]:
            found = [worker.call("opened") for _ in range(times)]
            return {
                "open": median(one[0] for one in found),
                "first fetch, nothing is due": median(one[1] for one in found),
            }

        for what, found in run.by_turns([*delayed, *empty], 3, measure).items():
            bound = Bound(50, "an empty store", most=True, over=True)
            note = f"{jobs:,} delayed jobs"
            yield Figure.of(f"delayed jobs: {what}", "ms", found, bound, note=note)
