"""Batches of 1,000: a pipeline of single XADDs, and `xadd_many`, which logs one record for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from tidelog.tools.bench.baselines.bare import Bare
from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.ours import Tidelog
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import SMALL


def rows(bench: Bench) -> Iterator[Figure]:
    yield from _relaxed(bench)
    yield from _durable(bench)


def _relaxed(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Bare(bench.fresh("bare"))) as bare,
        closing(Tidelog(bench.fresh("tidelog"), SMALL, fsync=EVERYSEC)) as piped,
        closing(Tidelog(bench.fresh("many"), SMALL, fsync=EVERYSEC, name="xadd_many")) as many,
        bench.peers(SMALL, durable=False) as peers,
    ):
        sides = [piped.adding_batches(), many.adding_many(), bare.writing()]
        rates = bench.race([*sides, *(peer.adding_batches() for peer in peers)])
    pipeline, together = rates.pop(piped.name), rates.pop(many.name)
    yield Figure(
        "pipelines of 1,000 XADD, everysec",
        "/s",
        pipeline,
        rates,
        (Bound(0.45, "os.write"),),
    )
    yield Figure(
        "xadd_many of 1,000, everysec",
        "/s",
        together,
        {name: rate for name, rate in rates.items() if name != "os.write"},
        (Bound(1_800_000),),
    )


def _durable(bench: Bench) -> Iterator[Figure]:
    with (
        closing(Tidelog(bench.fresh("many"), SMALL, fsync=ALWAYS)) as ours,
        bench.peers(SMALL, durable=True) as peers,
    ):
        sides = [ours.adding_many(), *(peer.adding_batches() for peer in peers)]
        rates = bench.race(sides)
    yield Figure(
        "xadd_many of 1,000, each synced",
        "/s",
        rates.pop(ours.name),
        rates,
        (Bound(1_200_000),),
    )
