"""A million pending entries beside a thousand: the extra cost of each command."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing

from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP, STREAM, Tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL
from tidelog.tools.bench.race import Contender

MANY, FEW = 1_000_000, 1_000
ACKS_MOST = FEW // 2  # entries of one slice: few enough that the small store still has some left
HOUR_MS = 3_600_000


class Delivered(Tidelog):
    """A store that keeps `pending` entries delivered and not acknowledged."""

    def __init__(self, bench: Bench, pending: int) -> None:
        super().__init__(bench.fresh("pending"), SMALL, fsync=EVERYSEC, name=f"{pending:,} pending")
        self._random = random.Random(pending)
        self._ids: list[bytes] = []
        self._chosen: list[bytes] = []
        self._deliver(pending)

    def _deliver(self, count: int) -> None:
        for start in range(0, count, 1_000):
            some = min(1_000, count - start)
            self.db.xadd_many(STREAM, self.messages.some(some))
            reply = self.db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=some)
            self._ids += [id for id, _ in reply[0][1]]

    def choose(self, count: int) -> None:
        """Deliver as many entries as were acknowledged, and draw the next ones to acknowledge at random."""
        self._deliver(len(self._chosen))
        ids = self._ids
        self._chosen = []
        for _ in range(count):
            position = self._random.randrange(len(ids))
            ids[position], ids[-1] = ids[-1], ids[position]
            self._chosen.append(ids.pop())

    def acknowledge(self, count: int) -> None:
        xack = self.db.xack
        for id in self._chosen:
            xack(STREAM, GROUP, id)

    def page(self, count: int) -> None:
        for _ in range(count):
            self.db.xpending_range(STREAM, GROUP, min="-", max="+", count=100)

    def summary(self, count: int) -> None:
        for _ in range(count):
            self.db.xpending(STREAM, GROUP)

    def claim_none(self, count: int) -> None:
        for _ in range(count):
            self.db.xautoclaim(STREAM, GROUP, "worker-2", min_idle_time=HOUR_MS, count=100)

    def claim_all(self, count: int) -> None:
        for _ in range(count):
            self.db.xautoclaim(STREAM, GROUP, "worker-2", min_idle_time=0, count=100)


def _acknowledging(store: Delivered) -> Contender:
    return Contender(store.name, store.acknowledge, store.choose, most=ACKS_MOST)


def _doing(name: str) -> Callable[[Delivered], Contender]:
    return lambda store: Contender(store.name, getattr(store, name))


# fmt: off
COMMANDS = (
    ("XACK, one anywhere",                _acknowledging),
    ("XADD",                              _doing("add")),
    ("XPENDING, a page of 100",           _doing("page")),
    ("XPENDING, summary",                 _doing("summary")),
    ("XAUTOCLAIM COUNT 100, nothing idle", _doing("claim_none")),
    ("XAUTOCLAIM COUNT 100, all idle",    _doing("claim_all")),
)
# fmt: on


def rows(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Delivered(bench, FEW)) as few,
        closing(Delivered(bench, MANY)) as many,
    ):
        for name, contender in COMMANDS:
            rates = bench.race([contender(few), contender(many)], more_rounds=3, slice_times=0.3)
            yield Figure(
                f"{name}, {many.name}",
                "us",
                1e6 / rates[many.name],
                {few.name: 1e6 / rates[few.name]},
                (Bound(2, few.name, most=True),),
            )
