"""Delayed jobs: put and worked off beside jobs that are due at once, 100 bytes each. The clock is moved by hand, so the
jobs become due without waiting. And a queue with limits beside one without.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import tidelog
from tidelog import testing
from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.delayed import Delayed
from tidelog.tools.bench.processes.fresh import Fresh

JOBS = 1_000_000
LIMITED = 200_000
MIB = 1 << 20
SINGLY = 20_000
DURABLY = 2_000
VALUE = b"x" * 100
HOUR = 3600.0
PARTS = (
    10  # the sides take turns in this many parts, so that busy moments of the machine affect both
)


def rows(bench: Bench) -> Iterator[Figure]:
    yield from _relaxed(bench)
    yield _durable(bench)
    yield from _at_rest(bench)
    yield from _limits(bench)


def _at_rest(bench: Bench) -> Iterator[Figure]:
    """A million jobs that nobody works on: the memory of the process, and the open after a restart."""
    jobs = bench.scaled(JOBS)
    grown: dict[str, float] = {}
    places = {name: bench.fresh(name) / "store" for name in ("at-once", "delayed", "empty")}
    for name, delayed in (("at-once", False), ("delayed", True)):
        with Fresh(Delayed, places[name]) as fresh:
            before = fresh.anonymous()
            fresh.peak()
            fresh.call("put", jobs, delayed)
            grown[name] = (fresh.peak() - before) / MIB
    yield Figure(
        "delayed jobs: memory of a backlog, memory_budget=32 MiB",
        "MiB",
        grown["delayed"],
        {"due at once": grown["at-once"]},
        (Bound(1.5, "due at once", most=True),),
        f"{jobs:,} jobs; the most of RssAnon beyond an open store",
    )
    spent: dict[str, list[list[float]]] = {"empty": [], "delayed": []}
    for _ in range(max(3, bench.rounds)):
        for name, times in spent.items():
            with Fresh(Delayed, places[name]) as fresh:
                times.append(fresh.call("opened"))
    for at, what in enumerate(("open", "first fetch, nothing is due")):
        ms = {name: median(each[at] for each in times) * 1000 for name, times in spent.items()}
        yield Figure(
            f"delayed jobs: {what}",
            "ms",
            ms["delayed"],
            {"empty store": ms["empty"]},
            (Bound(50.0, "empty store", most=True, over=True),),
            f"{jobs:,} delayed jobs",
        )


def _limits(bench: Bench) -> Iterator[Figure]:
    """Fetches by 100 and acknowledgements, of a queue without limits and of two with limits that hold nothing back."""
    options: dict[str, dict[str, Any]] = {
        "no limit": {},
        "concurrency": {"concurrency": 1_000},
        "rate": {"rate": "1000000000/d"},
    }
    jobs = bench.scaled(LIMITED)
    with tidelog.open(bench.fresh("limits"), fsync=EVERYSEC) as db:
        queues = {name: db.queue(name, codec="bytes", **each) for name, each in options.items()}
        for queue in queues.values():
            queue.put_many([VALUE] * (2 * jobs))
        sides: dict[str, Callable[[int], Any]] = {
            name: partial(_take, queue) for name, queue in queues.items()
        }
        rates = _rates(sides, jobs)
    for name in ("concurrency", "rate"):
        yield Figure(
            f"limits: consume and ack by 100 with {name}",
            "/s",
            rates[name],
            {"no limit": rates["no limit"]},
            (Bound(0.9, "no limit"),),
            EVERYSEC,
        )


def _relaxed(bench: Bench) -> Iterator[Figure]:
    clock = testing.Clock()
    with tidelog.open(bench.fresh("later"), fsync=EVERYSEC, clock=clock) as db:
        plain, delayed, scattered = (db.queue(name, codec="bytes") for name in "pds")
        dice = random.Random(1)
        jobs, singly = bench.scaled(JOBS), bench.scaled(SINGLY)
        put_many = {
            "due at once": lambda count: plain.put_many([VALUE] * count),
            "delayed": lambda count: delayed.put_many([VALUE] * count, delay=HOUR),
        }
        yield _figure(
            "put_many", _rates(put_many, jobs), Bound(0.7, "due at once"), f"{jobs:,} jobs"
        )
        put = {
            "due at once": lambda count: _each(count, lambda: plain.put(VALUE)),
            "delayed": lambda count: _each(
                count, lambda: scattered.put(VALUE, delay=HOUR * dice.random() + 1)
            ),
        }
        rates = _rates(put, singly)
        yield _figure("put one", rates, Bound(0.7, "due at once"), f"{EVERYSEC}, random delays")
        clock.advance(2 * HOUR)
        take = {
            "due at once": lambda count: _take(plain, count),
            "delayed": lambda count: _take(delayed, count),
        }
        rates = _rates(take, jobs)
        note = f"{jobs:,} jobs with one delay, batches of 100"
        yield _figure("consume and ack by 100", rates, Bound(0.5, "due at once"), note)
        take = {
            "due at once": lambda count: _take(plain, count),
            "delayed": lambda count: _take(scattered, count),
        }
        rates = _rates(take, singly)
        note = f"{singly:,} jobs with random delays, batches of 100"
        yield _figure("consume and ack by 100, scattered", rates, Bound(0.5, "due at once"), note)


def _durable(bench: Bench) -> Figure:
    with tidelog.open(bench.fresh("durable"), fsync=ALWAYS) as db:
        queue = db.queue("jobs", codec="bytes")
        put = {
            "due at once": lambda count: _each(count, lambda: queue.put(VALUE)),
            "delayed": lambda count: _each(count, lambda: queue.put(VALUE, delay=HOUR)),
        }
        rates = _rates(put, bench.scaled(DURABLY))
    return _figure("put one", rates, Bound(0.7, "due at once"), ALWAYS)


def _each(count: int, work: Callable[[], Any]) -> None:
    for _ in range(count):
        work()


def _take(queue: tidelog.Queue, count: int) -> None:
    """Work off `count` jobs, and no more than a batch beyond them."""
    done = 0
    with queue.consume("worker-1", 100, block=0) as jobs:
        for job in jobs:
            with job:
                done += 1
            if done == count:
                return


def _rates(sides: dict[str, Callable[[int], Any]], count: int) -> dict[str, float]:
    """Operations per second of each side, in alternation."""
    part = max(1, count // PARTS)
    spent = dict.fromkeys(sides, 0.0)
    for _ in range(PARTS):
        for name, work in sides.items():
            began = perf_counter()
            work(part)
            spent[name] += perf_counter() - began
    return {name: PARTS * part / taken for name, taken in spent.items()}


def _figure(what: str, rates: dict[str, float], target: Bound, note: str) -> Figure:
    return Figure(f"delayed jobs: {what}", "/s", rates.pop("delayed"), rates, (target,), note)
