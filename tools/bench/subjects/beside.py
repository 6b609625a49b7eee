"""XADD one at a time while another thread of the process computes: the usual case, an application's own work.

A thread that gives up the interpreter lock beside such a thread gets it back only after the switch interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.baselines.bare import Bare
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import Tidelog, beside_a_busy_thread
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL


def rows(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Bare(bench.fresh("bare"))) as bare,
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=EVERYSEC)) as ours,
    ):
        sides = [
            beside_a_busy_thread(ours.adding()),
            ours.adding(),
            beside_a_busy_thread(bare.writing()),
        ]
        rates = bench.race(sides, slice_times=2)
    beside = rates.pop(f"{ours.name} beside")
    rates["alone"] = rates.pop(ours.name)
    yield Figure(
        "XADD beside one CPU-bound thread",
        "/s",
        beside,
        rates,
        (Bound(0.3, "alone"),),
    )
