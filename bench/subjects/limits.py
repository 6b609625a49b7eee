"""Priorities, keys and limits of a queue: beside jobs without them, 100 bytes each. In processor time, which a busy
machine hardly changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.figure import Bound, Figure
from bench.ours import Jobs
from bench.race import CPU, Contender, each
from bench.run import EVERYSEC, Run
from bench.worker import Worker

PLAIN = "neither priorities nor limits"
KEYED = "keys without a limit"
# fmt: off
QUEUES: dict[str, dict[str, Any]] = {
    PLAIN:                             {},
    "one priority":                    {},
    "ten priorities":                  {},
    "concurrency":                     {"concurrency": 1_000},
    "rate":                            {"rate": "1000000000/d"},
    "concurrency_per_key without keys": {"concurrency_per_key": 1_000},
    KEYED:                             {},
    "concurrency_per_key":             {"concurrency_per_key": 1_000},
}
PUT: dict[str, dict[str, Any]] = {
    "one priority":        {"priority": 5},
    "ten priorities":      {"levels": 10},
    KEYED:                 {"keys": 100},
    "concurrency_per_key": {"keys": 100},
}
# fmt: on
PRIORITIES = PLAIN, "one priority", "ten priorities"
LIMITS = PLAIN, "concurrency", "rate", "concurrency_per_key without keys"


def rows(run: Run) -> Iterator[Figure]:
    with run.sides(Jobs, "TEXT", EVERYSEC, queues=QUEUES) as ours:
        steps: tuple[tuple[str, float, str, dict[str, Any]], ...] = (
            ("put one", 0.2, "add_and_forget", {}),
            ("consume and ack one", 0.3, "take", {"at_once": 1}),
            ("put_many", 0.3, "batches_and_forget", {}),
            ("consume and ack by 100", 0.7, "take", {"at_once": 100}),
        )
        for what, least, method, options in steps:
            yield from _figures(run, what, _beside(ours, PRIORITIES, method, options), least)
        taken = {"at_once": 100}
        what = "consume and ack by 100"
        yield from _figures(run, what, _beside(ours, LIMITS, "take", taken), 0.9)
        keyed = _beside(ours, (KEYED, "concurrency_per_key"), "take", taken)
        yield from _figures(run, what, keyed, 0.75, KEYED)


def _beside(
    ours: list[Worker], names: tuple[str, ...], method: str, options: dict[str, Any]
) -> list[Contender]:
    """The same slices on each of these queues."""
    return [
        contender
        for name in names
        for contender in each(
            ours, method, name=name, quantum=1_000, queue=name, **options, **PUT.get(name, {})
        )
    ]


def _figures(
    run: Run, what: str, contenders: list[Contender], least: float, beside: str = PLAIN
) -> Iterator[Figure]:
    rates = run.race(contenders, clock=CPU)
    for name in rates:
        if name != beside:
            pair = {name: rates[name], beside: rates[beside]}
            yield Figure.of(
                f"limits: {what}, {name}",
                "/s",
                pair,
                Bound(least, beside),
                note="of processor time",
                measured=name,
            )
