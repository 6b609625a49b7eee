"""Races: contenders take turns in short slices, so that busy moments of the machine affect all of them.

A slice is a number of operations, found once per contender so that it lasts about `slice_s`. The order is drawn anew in
each round. The result of a contender is the median of its slices.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench.worker import Worker

SLICE_OPERATIONS_MAX: Final = 4_000_000
WALL, CPU = 0, 1  # the clocks: which of the two times of a slice counts


class Value(NamedTuple):
    """A figure of this version, and of the one that it is compared with."""

    this: float
    other: float | None = None

    def times(self, factor: float) -> Value:
        """Each times this factor."""
        return Value(self.this * factor, None if self.other is None else self.other * factor)

    def rate(self, count: float) -> Value:
        """The count per second, of seconds."""
        return Value(count / self.this, None if self.other is None else count / self.other)


@dataclass(frozen=True)
class Contender:
    """One side of a race.

    slice      does n operations; seconds, and seconds of processor time
    quantum    operations come in multiples of this
    most       no slice is larger
    version    as of a Worker
    """

    name: str
    slice: Callable[[int], tuple[float, float]]
    quantum: int = 1
    most: int = SLICE_OPERATIONS_MAX
    version: int = 0

    def fit(self, slice_s: float) -> int:
        """The number of operations of a slice. Also warms the contender up."""
        count = self.quantum
        while True:
            spent, _ = self.slice(count)
            if spent >= slice_s / 3 or count >= self.most:
                break
            count = min(count * 4, self.most)
        wanted = min(int(count * slice_s / max(spent, 1e-9)), self.most)
        return max(1, wanted // self.quantum) * self.quantum


def each(
    workers: Iterable[Worker],
    method: str,
    *,
    name: str | None = None,
    quantum: int = 1,
    most: int = SLICE_OPERATIONS_MAX,
    **options: object,
) -> list[Contender]:
    """Every worker as a contender that calls this method, under its own name or the one given."""

    def doing(worker: Worker) -> Callable[[int], tuple[float, float]]:
        return lambda count: worker.slice(method, count, **options)

    return [
        Contender(name or worker.name, doing(worker), quantum, most, worker.version)
        for worker in workers
    ]


def race(
    contenders: Iterable[Contender], *, rounds: int, slice_s: float, clock: int = WALL
) -> dict[str, Value]:
    """Name -> median operations per second, in the order given."""
    runners = [(contender, contender.fit(slice_s)) for contender in contenders]
    rates: dict[tuple[str, int], list[float]] = {
        (contender.name, contender.version): [] for contender, _ in runners
    }
    shuffled = runners[:]
    order = random.Random(len(runners))
    for _ in range(rounds):
        order.shuffle(shuffled)
        for contender, count in shuffled:
            spent = contender.slice(count)[clock]
            rates[contender.name, contender.version].append(count / max(spent, 1e-9))
    return medians(rates)


def medians(found: dict[tuple[str, int], list[float]]) -> dict[str, Value]:
    """(name, version) -> figures, as name -> median of each version."""
    of = {side: statistics.median(figures) for side, figures in found.items()}
    return {name: Value(of[name, 0], of.get((name, 1))) for name, version in of if not version}
