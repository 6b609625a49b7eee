"""fsync=always: a call returns when it is on disk. With one thread, and with 16 threads that share syncs."""

from __future__ import annotations

from collections.abc import Iterator

from bench.baselines.bare import Filled, Growing
from bench.figure import Bound, Figure
from bench.ours import Streams
from bench.race import WALL, each
from bench.run import ALWAYS, STORES, Run

THREADS = 16
BARE = {"bare, preallocated": Filled, "bare, growing": Growing}


def rows(run: Run) -> Iterator[Figure]:
    with (
        run.sides(Streams, "SMALL", ALWAYS) as ours,
        run.beside(BARE) as bare,
        run.peers(STORES, "SMALL", durable=True) as peers,
    ):
        # The speed of a disk changes ten times a second. So use many short slices, above all to compare these.
        alone = run.race(each([*ours, *bare], "add"), more_rounds=3, slice_times=0.5, clock=WALL)
        slower = run.race(each(peers, "add"), clock=WALL)
        threads = each(ours, "add_threads", quantum=THREADS, threads=THREADS)
        both = run.race([*threads, *each(ours, "add", name="one thread")], clock=WALL)
    yield Figure.of(
        "XADD one at a time, always, one thread",
        "/s",
        {**alone, **slower},
        Bound(0.85, "bare, preallocated"),
        note="bare: pwrite + fdatasync of 80 bytes",
    )
    yield Figure.of(
        f"XADD one at a time, always, {THREADS} threads",
        "/s",
        both,
        Bound(3, "one thread"),
        Bound(25_000),
    )
