"""After a restart: open and the first call, with one and ten million entries stored and nothing behind the checkpoint.

Each figure comes from a fresh process that has imported everything; the files are in the kernel's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import First, Opened
from tidelog.tools.bench.processes.stored import pending_store, sensor_store

SOME, MANY = 1_000_000, 10_000_000
PENDING = 1_000_000
TIMES, QUICK_TIMES = 7, 3
OVER_EMPTY_MS = 50
EMPTY = "an empty store"
CALLS = ("XLEN", "last entry", "XADD", "XREADGROUP")


@dataclass
class _Times:
    """Milliseconds, one of each round."""

    both: list[float]
    call: list[float]


def rows(bench: Bench) -> Iterator[Figure]:
    empty = bench.fresh("empty") / "store"
    with Fresh(Opened, empty):
        pass
    yield from _entries(bench, empty)
    yield from _pending(bench, empty)


def _entries(bench: Bench, empty: Path) -> Iterator[Figure]:
    sizes = [bench.scaled(SOME), bench.scaled(MANY)]
    stores = {EMPTY: empty}
    stores |= {_named(size): sensor_store(bench, size).path for size in sizes}
    found: dict[tuple[str, str], _Times] = {}
    for _ in range(_times(bench)):
        for call in CALLS:
            for name, path in stores.items():
                _measure(found, (name, call), path, call)
    for size in sizes:
        redis = _redis(bench, size)
        for call in CALLS:
            bare = median(found[EMPTY, call].both)
            yield Figure(
                f"open and first {call}, {_named(size)}",
                "ms",
                median(found[_named(size), call].both),
                {EMPTY: bare, **redis},
                (Bound(OVER_EMPTY_MS, EMPTY, most=True, over=True),),
                "a fresh process, imports excluded; redis-server: start to first XLEN",
            )


def _pending(bench: Bench, empty: Path) -> Iterator[Figure]:
    count = bench.scaled(PENDING)
    made = pending_store(bench, count)
    found: dict[tuple[str, str], _Times] = {}
    for number in range(_times(bench)):
        _measure(found, ("pending", "XREADGROUP"), made.path, "XREADGROUP")
        _measure(found, ("pending", "XACK"), made.path, "XACK", made.ids[number])
        _measure(found, (EMPTY, "XADD"), empty, "XADD")
    base = {f"first XADD, {EMPTY}": median(found[EMPTY, "XADD"].call)}
    for call, shown in (("XREADGROUP", "XREADGROUP of `>`"), ("XACK", "XACK, one anywhere")):
        times = found["pending", call]
        yield Figure(
            f"first {shown}, {count:,} pending, after a restart",
            "ms",
            median(times.call),
            base | {"with the open": median(times.both)},
            (Bound(20, most=True),),
            "a fresh process, imports excluded; what a first write of a process costs is in it",
        )


def _measure(
    found: dict[tuple[str, str], _Times], name: tuple[str, str], path: Path, *arguments: str
) -> None:
    with Fresh(First) as fresh:
        seconds = fresh.call("first", path, *arguments)
    times = found.setdefault(name, _Times([], []))
    times.both.append(seconds["both"] * 1_000)
    times.call.append(seconds["call"] * 1_000)


def _redis(bench: Bench, entries: int) -> dict[str, float]:
    try:
        # here: redis-py may be missing
        from tidelog.tools.bench.baselines.redis_saved import restarts

        found = restarts(bench.fresh("redis-restart"), entries)
    except (ImportError, FileNotFoundError) as error:
        bench.missing["redis-py"] = str(error)
        return {}
    return {f"redis-server, {name}": found[name] for name in ("RDB", "AOF")}


def _times(bench: Bench) -> int:
    return QUICK_TIMES if bench.quick else TIMES


def _named(size: int) -> str:
    return f"{size:,} entries"
