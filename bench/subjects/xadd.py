"""XADD of two small fields: one call at a time, in pipelines of 1,000, and as `xadd_many`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.baselines.bare import Bare
from bench.figure import Bound, Figure
from bench.messages import BATCH
from bench.ours import Streams
from bench.race import WALL, each
from bench.run import ALWAYS, EVERYSEC, STORES, Run


def rows(run: Run) -> Iterator[Figure]:
    with (
        run.sides(Streams, "SMALL", EVERYSEC) as ours,
        run.beside({"os.write": Bare}) as bare,
        run.peers(STORES, "SMALL", durable=False) as peers,
    ):
        one = run.race(each([*ours, *bare, *peers], "add"))
        batches = each([*ours, *peers], "add_batches", quantum=BATCH)
        pipelines = run.race([*batches, *each(bare, "add")])
        many = run.race(each(ours, "add_many", quantum=BATCH))
    together = {**pipelines, **many}
    together.pop("os.write", None)
    note = "two small fields; os.write: 80 bytes, growing file"
    yield Figure.of("XADD one at a time, everysec", "/s", one, Bound(0.22, "os.write"), note=note)
    yield Figure.of("pipelines of 1,000 XADD, everysec", "/s", pipelines, Bound(0.45, "os.write"))
    yield Figure.of("xadd_many of 1,000, everysec", "/s", together, Bound(1_800_000))
    with (
        run.sides(Streams, "SMALL", ALWAYS) as ours,
        run.peers(STORES, "SMALL", durable=True) as peers,
    ):
        synced = each(ours, "add_many", quantum=BATCH)
        rates = run.race([*synced, *each(peers, "add_batches", quantum=BATCH)], clock=WALL)
    yield Figure.of("xadd_many of 1,000, each synced", "/s", rates, Bound(1_200_000))
