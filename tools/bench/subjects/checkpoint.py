"""Checkpoints: how long a writer pauses beside one, the cost of one, and the size of the file.

The writer adds one entry after another in the same process; a pause is the time from the end of one call to the end of
the next. `quiet` is the same writer for as long, but 15 s at most, right after the checkpoint. The collector is on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from statistics import median
from typing import Any

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import Opened
from tidelog.tools.bench.processes.pauses import Pauses
from tidelog.tools.bench.processes.stored import sensor_store

# fmt: off
CASES = (
    ("entries", "dirty entries",         1_000_000),
    ("pending", "dirty pending entries", 1_000_000),
    ("streams", "dirty streams",           100_000),
)
# fmt: on
TIMES, QUICK_TIMES = 3, 1
# Number of measurements beside a CPU-bound thread: only one, because each takes minutes and no target is set for it.
BUSY_TIMES = 1
FEW, MANY, DIRTY = 10_000, 10_000_000, 10_000
# If other processes also sync, medians of nine measurements can differ by a factor of 1.8. So a full run takes more of
# them.
COST_TIMES, QUICK_COST_TIMES = 41, 9
APART, CHECKPOINTS = 1_000_000, 10
MIB = 1 << 20


def rows(bench: Bench) -> Iterator[Figure]:
    for what, shown, count in CASES:
        yield from _pauses(bench, what, bench.scaled(count), shown)
    yield _cost(bench)
    yield _bytes_per_entry(bench)


def _pauses(bench: Bench, what: str, count: int, shown: str) -> Iterator[Figure]:
    alone, memory = _measured(bench, what, count, busy=False)
    beside, _ = _measured(bench, what, count, busy=True)
    redis = _redis(bench, what, count)
    case = f"checkpoint of {count:,} {shown}"
    for name, quantile, most in (("longest pause", "worst", 20), ("pause, p99.9", "p99.9", 5)):
        quiet = _of(alone, "quiet", quantile)
        baselines = {"quiet": quiet}
        if redis:
            baselines["redis-server, BGSAVE"] = redis["during"][quantile]
            baselines["redis-server, quiet"] = redis["quiet"][quantile]
        worst = _of(alone, "during", quantile)
        yield Figure(
            f"{name}, {case}",
            "ms",
            worst,
            baselines,
            (Bound(most, most=True),),
            f"{len(alone)} checkpoints, {_calls(alone):,} XADDs beside them",
        )
        yield Figure(
            f"{name}, {case}, and a CPU-bound thread",
            "ms",
            _of(beside, "during", quantile),
            {"quiet": _of(beside, "quiet", quantile)},
            note=f"{_calls(beside):,} XADDs",
        )
    seconds = {"and a CPU-bound thread": _seconds(beside)}
    if redis:
        seconds["redis-server, BGSAVE"] = redis["seconds"]
    yield Figure(f"whole time, {case}", "s", _seconds(alone), seconds, note="beside the writer")
    copied = {"redis-server, BGSAVE": redis["memory"] / MIB} if redis else {}
    yield Figure(
        f"memory, {case}",
        "MiB",
        memory / MIB,
        copied,
        note="growth of anonymous memory meanwhile; redis-server: pages copied on write",
    )


def _measured(bench: Bench, what: str, count: int, *, busy: bool) -> tuple[list[Any], int]:
    """The results of `Pauses.beside`, each round in a new store; and the largest growth of memory in a round."""
    found: list[Any] = []
    grown = 0
    for _ in range(QUICK_TIMES if bench.quick else BUSY_TIMES if busy else TIMES):
        with Fresh(Pauses, bench.fresh("pauses") / "store") as fresh:
            fresh.call("dirty", what, count)
            before = fresh.anonymous()
            fresh.peak()
            found.append(fresh.call("beside", busy))
            grown = max(grown, fresh.peak() - before)
    return found, grown


def _of(found: list[Any], phase: str, quantile: str) -> float:
    """The longest of all pauses; of the quantile the median of the rounds."""
    values = [one[phase][quantile] for one in found]
    return float(max(values) if quantile == "worst" else median(values))


def _calls(found: list[Any]) -> int:
    return sum(one["during"]["calls"] for one in found)


def _seconds(found: list[Any]) -> float:
    return float(median(one["seconds"] for one in found))


def _redis(bench: Bench, what: str, count: int) -> dict[str, Any] | None:
    try:
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_saved import saving

        return saving(bench.fresh("redis-bgsave"), what, count)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return None


def _cost(bench: Bench) -> Figure:
    """The same number of dirty entries in a small store and a large one, by turns, which stay as large as they are."""
    many, few = bench.scaled(MANY), bench.scaled(FEW)
    times = QUICK_COST_TIMES if bench.quick else COST_TIMES
    spent: dict[int, list[float]] = {few: [], many: []}
    with (
        Fresh(Opened, sensor_store(bench, few).path) as small,
        Fresh(Opened, sensor_store(bench, many).path) as large,
    ):
        os.sync()  # so that they do not wait for earlier writes
        for _ in range(times):
            for entries, fresh in ((few, small), (many, large)):
                fresh.call("add", DIRTY)
                spent[entries].append(fresh.call("checkpoint") * 1_000)
                fresh.call("drop_newest", DIRTY)
    return Figure(
        f"checkpoint of {DIRTY:,} dirty entries, {many:,} stored",
        "ms",
        median(spent[many]),
        {f"{few:,} stored": median(spent[few])},
        (Bound(1.5, f"{few:,} stored", most=True),),
        f"medians of {times}; nothing else in the process; fsyncs included",
    )


def _bytes_per_entry(bench: Bench) -> Figure:
    entries = bench.scaled(APART)
    with Fresh(Opened, bench.fresh("apart") / "store") as fresh:
        often = fresh.call("add_apart", entries, CHECKPOINTS)
    with Fresh(Opened, bench.fresh("apart") / "store") as fresh:
        once = fresh.call("add_apart", entries, 1)
    baselines = {"one checkpoint": once["on_disk"]}
    redis = _redis_file(bench, entries)
    if redis is not None:
        baselines["redis-server, RDB"] = redis
    return Figure(
        "checkpoint/data.mdb per entry",
        "B",
        often["on_disk"],
        baselines,
        (Bound(20, most=True),),
        f"{entries:,} entries, one a second, two readings each, {CHECKPOINTS} checkpoints",
    )


def _redis_file(bench: Bench, entries: int) -> float | None:
    try:
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_saved import file_bytes

        return file_bytes(bench.fresh("redis-file"), entries)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return None
