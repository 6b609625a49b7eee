"""The slowest calls: XADD one at a time over several segments, each call timed by itself.

The cost of preparing and ending segments appears here and in no median. The garbage collector stays on, as in an
application.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import STREAM, Tidelog
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.messages import RANDOM

VALUE_BYTES = 100
WRITTEN_BYTES = 600_000_000  # of values; the log holds half as much again
# Bytes of values under `always`, where each call waits for the disk. They are fewer, but the log is still longer than
# one segment.
SYNCED_BYTES = 60_000_000
SLICE = 1_000


def rows(bench: Bench) -> Iterator[Figure]:
    for policy in (EVERYSEC, "no", ALWAYS):
        of_values = SYNCED_BYTES if policy == ALWAYS else WRITTEN_BYTES
        count = bench.scaled(of_values) // VALUE_BYTES
        with closing(Tidelog(bench.fresh("tidelog"), RANDOM, fsync=policy)) as ours:
            spent = sorted(_timed(ours, count))
        shares = {"p99.9": 0.999, "p99": 0.99, "p50": 0.5}
        yield Figure(
            f"slowest XADD of {count:,}, {policy}",
            "us",
            spent[-1] / 1000,
            {name: spent[int(share * count)] / 1000 for name, share in shares.items()},
            note=f"{VALUE_BYTES} random bytes each; segments of the default size",
        )


def _timed(ours: Tidelog, count: int) -> array[int]:
    """Nanoseconds of each of `count` calls."""
    spent = array("q", bytes(8 * count))
    clock, xadd = time.perf_counter_ns, ours.db.xadd
    for start in range(0, count, SLICE):
        for index, fields in enumerate(ours.messages.some(min(SLICE, count - start)), start):
            began = clock()
            xadd(STREAM, fields)
            spent[index] = clock() - began
    return spent
