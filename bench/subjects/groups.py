"""Consumer groups: XREADGROUP and XACK of what it gave, entries per second through both."""

from __future__ import annotations

from collections.abc import Iterator

from bench.figure import Bound, Figure
from bench.ours import Streams
from bench.race import WALL, each
from bench.run import ALWAYS, EVERYSEC, STORES, Run

QUANTUM = 100


def rows(run: Run) -> Iterator[Figure]:
    with (
        run.sides(Streams, "SMALL", EVERYSEC) as ours,
        run.peers(STORES, "SMALL", durable=False) as peers,
    ):
        hundred = run.race(each([*ours, *peers], "take", quantum=QUANTUM, at_once=100))
        single = run.race(each([*ours, *peers], "take", quantum=10, at_once=1))
    note = "entries through both"
    yield Figure.of(
        "XREADGROUP COUNT 100 + XACK 100, everysec", "/s", hundred, Bound(500_000), note=note
    )
    yield Figure.of("XREADGROUP COUNT 1 + XACK 1, everysec", "/s", single, Bound(45_000))
    with (
        run.sides(Streams, "SMALL", ALWAYS) as ours,
        run.peers(STORES, "SMALL", durable=True) as peers,
    ):
        sides = each([*ours, *peers], "take", quantum=10, at_once=1)
        durable = run.race(sides, clock=WALL)
    yield Figure.of("XREADGROUP COUNT 1 + XACK 1, always", "/s", durable, Bound(2, "redis-py"))
