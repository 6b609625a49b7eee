"""Other queues at the same work, 100 random bytes a message: one at a time and by 1,000, relaxed and durable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import Tidelog
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.messages import RANDOM


def rows(bench: Bench) -> Iterator[Figure]:
    for durable, level in ((True, "durable"), (False, "relaxed")):
        fsync = ALWAYS if durable else EVERYSEC
        with (
            closing(Tidelog(bench.fresh("tidelog"), RANDOM, fsync=fsync)) as ours,
            bench.peers(RANDOM, durable=durable) as peers,
        ):
            single = bench.race([side.adding() for side in [ours, *peers]])
            yield Figure(f"add one, {level}", "/s", single.pop(ours.name), single)
            many = [ours.adding_many(), *(peer.adding_batches() for peer in peers)]
            batches = bench.race(many)
            yield Figure(f"add 1,000, {level}", "/s", batches.pop(ours.name), batches)
            taken = bench.race([side.taking(100) for side in [ours, *peers]])
            yield Figure(f"claim and ack by 100, {level}", "/s", taken.pop(ours.name), taken)
            one = bench.race([side.taking(1) for side in [ours, *peers]])
            yield Figure(f"claim and ack one, {level}", "/s", one.pop(ours.name), one)
