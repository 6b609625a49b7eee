"""Priorities of a queue: jobs with priorities beside jobs without, 100 bytes each. In processor time,
which a busy machine hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import tidelog
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure

JOBS = 400_000
SINGLY = 40_000
VALUE = b"x" * 100
PLAIN = "no priorities"
PARTS = (
    20  # the sides take turns in this many parts, so that busy moments of the machine affect both
)


def rows(bench: Bench) -> Iterator[Figure]:
    with tidelog.open(bench.fresh("limits"), fsync=EVERYSEC) as db:
        plain, one, ten = (db.queue(name, codec="bytes") for name in ("plain", "one", "ten"))
        jobs, singly = bench.scaled(JOBS), bench.scaled(SINGLY)
        put: dict[str, Callable[[int], Any]] = {
            PLAIN: lambda count: _each(count, lambda at: plain.put(VALUE)),
            "one priority": lambda count: _each(count, lambda at: one.put(VALUE, priority=5)),
            "ten priorities": lambda count: _each(
                count, lambda at: ten.put(VALUE, priority=at % 10)
            ),
        }
        yield from _figures("put one", _rates(put, singly), 0.2)
        yield from _taking("consume and ack one", plain, one, ten, singly, 1, 0.3)
        put = {
            PLAIN: lambda count: plain.put_many([VALUE] * count),
            "one priority": lambda count: one.put_many([VALUE] * count, priority=5),
            "ten priorities": lambda count: _each(
                10, lambda at: ten.put_many([VALUE] * (count // 10), priority=at)
            ),
        }
        yield from _figures("put_many", _rates(put, jobs), 0.3)
        yield from _taking("consume and ack by 100", plain, one, ten, jobs, 100, 0.7)


def _taking(
    what: str, plain: Any, one: Any, ten: Any, count: int, batch: int, least: float
) -> Iterator[Figure]:
    take: dict[str, Callable[[int], Any]] = {
        PLAIN: lambda count: _take(plain, count, batch),
        "one priority": lambda count: _take(one, count, batch),
        "ten priorities": lambda count: _take(ten, count, batch),
    }
    yield from _figures(what, _rates(take, count), least)


def _each(count: int, work: Callable[[int], Any]) -> None:
    for at in range(count):
        work(at)


def _take(queue: tidelog.Queue, count: int, batch: int) -> None:
    """Work off `count` jobs, and no more than a batch beyond them."""
    done = 0
    with queue.consume("worker-1", batch, block=0) as jobs:
        for job in jobs:
            with job:
                done += 1
            if done == count:
                return


def _rates(sides: dict[str, Callable[[int], Any]], count: int) -> dict[str, float]:
    """Operations of each side per second of processor time, in alternation."""
    part = max(10, count // PARTS)
    spent = dict.fromkeys(sides, 0.0)
    for turn in range(PARTS):
        names = list(sides)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began = process_time()
            sides[name](part)
            spent[name] += process_time() - began
    return {name: PARTS * part / taken for name, taken in spent.items()}


def _figures(what: str, rates: dict[str, float], least: float) -> Iterator[Figure]:
    base = {PLAIN: rates.pop(PLAIN)}
    for name, rate in rates.items():
        target = (Bound(least, PLAIN),)
        yield Figure(f"limits: {what}, {name}", "/s", rate, base, target, "of processor time")
