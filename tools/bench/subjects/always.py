"""fsync=always: a call returns when it is on disk. With one thread, and with 16 threads that share syncs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.baselines.bare import Bare
from tidelog.tools.bench.bench import ALWAYS, Bench
from tidelog.tools.bench.contenders.ours import Tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL

THREADS = 16


def rows(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Bare(bench.fresh("bare"))) as bare,
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=ALWAYS)) as ours,
    ):
        # The speed of a disk changes ten times a second. So use many short slices, above all to compare Bare and
        # Tidelog.
        sides = [ours.adding(), bare.syncing_filled(), bare.syncing_growing()]
        alone = bench.race(sides, more_rounds=3, slice_times=0.5)
        with bench.peers(SMALL, durable=True) as peers:
            slower = bench.race([peer.adding() for peer in peers])
        one_thread = alone.pop(ours.name)
        yield Figure(
            "XADD one at a time, always, one thread",
            "/s",
            one_thread,
            {**alone, **slower},
            (Bound(0.85, "bare, preallocated"),),
            "bare: pwrite + fdatasync of 80 bytes",
        )
        many = ours.adding_from_threads(THREADS)
        many.name = "threads"
        both = bench.race([many, ours.adding()])
    yield Figure(
        f"XADD one at a time, always, {THREADS} threads",
        "/s",
        both["threads"],
        {"one thread": both[ours.name]},
        (Bound(3, "one thread"), Bound(25_000)),
    )
