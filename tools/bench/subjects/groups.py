"""Consumer groups: XREADGROUP and XACK of what it gave, messages per second through both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import Tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL


def rows(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=EVERYSEC)) as ours,
        bench.peers(SMALL, durable=False) as peers,
    ):
        sides = [ours, *peers]
        hundred = bench.race([side.taking(100) for side in sides])
        single = bench.race([side.taking(1) for side in sides])
    yield Figure(
        "XREADGROUP COUNT 100 + XACK 100, everysec",
        "/s",
        hundred.pop(ours.name),
        hundred,
        (Bound(500_000),),
        "messages through both",
    )
    yield Figure(
        "XREADGROUP COUNT 1 + XACK 1, everysec",
        "/s",
        single.pop(ours.name),
        single,
        (Bound(45_000),),
    )
    with (
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=ALWAYS)) as ours,
        bench.peers(SMALL, durable=True) as peers,
    ):
        durable = bench.race([side.taking(1) for side in [ours, *peers]])
    yield Figure(
        "XREADGROUP COUNT 1 + XACK 1, always",
        "/s",
        durable.pop(ours.name),
        durable,
        (Bound(2, "redis-py"),),
    )
