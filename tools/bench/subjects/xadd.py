"""XADD of two small fields, one call at a time: decided, logged, applied, in the kernel when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.baselines.bare import Bare
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import Tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL


def rows(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Bare(bench.fresh("bare"))) as bare,
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=EVERYSEC)) as ours,
        bench.peers(SMALL, durable=False) as peers,
    ):
        sides = [ours.adding(), bare.writing(), *(peer.adding() for peer in peers)]
        rates = bench.race(sides)
    yield Figure(
        "XADD one at a time, everysec",
        "/s",
        rates.pop(ours.name),
        rates,
        (Bound(0.22, "os.write"),),
        "two small fields; os.write: 80 bytes, growing file",
    )
