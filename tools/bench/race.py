"""Races: contenders take turns in short slices, so that busy moments of the machine affect all of them.

A slice is a number of operations, found once per contender so that it lasts about `slice_s`. Everything a slice needs
(messages to consume) is prepared outside the measured time. The order is drawn anew in each round. The result of a
contender is the median of its slices.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Operation = Callable[[int], object]

SLICE_OPERATIONS_MAX = 4_000_000


def nothing(count: int) -> None:
    """A slice that needs no preparation."""


@dataclass
class Contender:
    """One side of a race.

    run         does that many operations; only this is measured
    prepare     prepares a run of that many operations
    settle      cleans up after it
    quantum     operations come in multiples of this
    most        no slice is larger than this (what a store of 1,000 pending entries has to offer)
    """

    name: str
    run: Operation
    prepare: Operation = nothing
    settle: Operation = nothing
    quantum: int = 1
    most: int = SLICE_OPERATIONS_MAX

    def slice(self, count: int) -> float:
        """Seconds that `count` operations took."""
        self.prepare(count)
        start = time.perf_counter()
        self.run(count)
        spent = time.perf_counter() - start
        self.settle(count)
        return spent

    def fit(self, slice_s: float) -> int:
        """The number of operations of a slice. Also warms the contender up."""
        count = self.quantum
        while True:
            spent = self.slice(count)
            if spent >= slice_s / 3 or count >= self.most:
                wanted = int(count * slice_s / max(spent, 1e-9))
                break
            count = min(count * 4, self.most)
        whole = max(1, min(wanted, self.most) // self.quantum)
        return whole * self.quantum


def race(contenders: Iterable[Contender], *, rounds: int, slice_s: float) -> dict[str, float]:
    """Name -> median operations per second, in the order given."""
    runners = [(contender, contender.fit(slice_s)) for contender in contenders]
    rates: dict[str, list[float]] = {contender.name: [] for contender, _ in runners}
    shuffled = runners[:]
    order = random.Random(len(runners))
    for _ in range(rounds):
        order.shuffle(shuffled)
        for contender, count in shuffled:
            rates[contender.name].append(count / contender.slice(count))
    return {name: statistics.median(of) for name, of in rates.items()}
