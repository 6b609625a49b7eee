"""Priorities, keys and limits of a queue: beside jobs without them, 100 bytes each. In processor time, which a busy
machine hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any

import tidelog
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure

JOBS = 400_000
SINGLY = 40_000
VALUE = b"x" * 100
PLAIN = "neither priorities nor limits"
KEYED = "keys without a limit"
KEYS = 100
Sides = dict[str, Callable[[int], Any]]
PARTS = (
    20  # the sides take turns in this many parts, so that busy moments of the machine affect both
)


def rows(bench: Bench) -> Iterator[Figure]:
    with tidelog.open(bench.fresh("limits"), fsync=EVERYSEC) as db:
        yield from _priorities(bench, db)
        yield from _limits(bench, db)


def _priorities(bench: Bench, db: tidelog.Store) -> Iterator[Figure]:
    plain, one, ten = (db.queue(name, codec="bytes") for name in ("plain", "one", "ten"))
    sides = {PLAIN: plain, "one priority": one, "ten priorities": ten}
    jobs, singly = bench.scaled(JOBS), bench.scaled(SINGLY)
    put: Sides = {
        PLAIN: lambda count: _each(count, lambda at: plain.put(VALUE)),
        "one priority": lambda count: _each(count, lambda at: one.put(VALUE, priority=5)),
        "ten priorities": lambda count: _each(count, lambda at: ten.put(VALUE, priority=at % 10)),
    }
    yield from _figures("put one", _rates(put, singly), 0.2)
    yield from _figures("consume and ack one", _rates(_taking(sides, 1), singly), 0.3)
    put = {
        PLAIN: lambda count: plain.put_many([VALUE] * count),
        "one priority": lambda count: one.put_many([VALUE] * count, priority=5),
        "ten priorities": lambda count: _each(
            10, lambda at: ten.put_many([VALUE] * (count // 10), priority=at)
        ),
    }
    yield from _figures("put_many", _rates(put, jobs), 0.3)
    yield from _figures("consume and ack by 100", _rates(_taking(sides, 100), jobs), 0.7)


def _limits(bench: Bench, db: tidelog.Store) -> Iterator[Figure]:
    """Queues whose limits hold nobody back: what the limits themselves cost."""
    jobs = bench.scaled(JOBS)
    free = db.queue("free", codec="bytes")
    held = db.queue("held", codec="bytes", concurrency=1_000)
    keyed = db.queue("keyed", codec="bytes", concurrency_per_key=1_000)
    shown = db.queue("shown", codec="bytes")
    unkeyed = db.queue("unkeyed", codec="bytes", concurrency_per_key=1_000)
    for queue in (free, held, unkeyed):
        queue.put_many([VALUE] * jobs)
    for queue in (keyed, shown):
        for key in range(KEYS):
            queue.put_many([VALUE] * (jobs // KEYS), key=f"customer-{key}")
    sides = {PLAIN: free, "concurrency": held, "concurrency_per_key without keys": unkeyed}
    yield from _figures("consume and ack by 100", _rates(_taking(sides, 100), jobs), 0.9)
    sides = {KEYED: shown, "concurrency_per_key": keyed}
    rates = _rates(_taking(sides, 100), jobs)
    yield from _figures("consume and ack by 100", rates, 0.75, KEYED)


def _taking(queues: dict[str, Any], batch: int) -> Sides:
    return {name: partial(_take, queue, batch) for name, queue in queues.items()}


def _each(count: int, work: Callable[[int], Any]) -> None:
    for at in range(count):
        work(at)


def _take(queue: tidelog.Queue, batch: int, count: int) -> None:
    """Work off `count` jobs, and no more than a batch beyond them."""
    done = 0
    with queue.consume("worker-1", batch, block=0) as jobs:
        for job in jobs:
            with job:
                done += 1
            if done == count:
                return


def _rates(sides: Sides, count: int) -> dict[str, float]:
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


def _figures(
    what: str, rates: dict[str, float], least: float, beside: str = PLAIN
) -> Iterator[Figure]:
    base = {beside: rates.pop(beside)}
    for name, rate in rates.items():
        target = (Bound(least, beside),)
        yield Figure(f"limits: {what}, {name}", "/s", rate, base, target, "of processor time")
