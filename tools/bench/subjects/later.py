"""Delayed jobs: put and worked off beside jobs that are due at once, 100 bytes each. The clock is moved by hand, so the
jobs become due without waiting.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import tidelog
from tidelog import testing
from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure

JOBS = 1_000_000
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
