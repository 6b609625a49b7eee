"""The durable queue beside other queues; ten million waiting jobs beside a thousand; the memory left after a million
done jobs.

Every job has 100 bytes unless its row says otherwise, and is gone when it is done (keep=0).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.our_queue import Commands, TidelogQueue
from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import DICTS, TEXT, TINY, Messages
from tidelog.tools.bench.processes.child import ask

MANY, FEW = 10_000_000, 1_000
WORKED_OFF = 1_000_000
MIB = 1 << 20


def rows(bench: Bench) -> Iterator[Figure]:
    yield from _relaxed(bench)
    yield from _durable(bench)
    yield from _deep(bench)
    yield from _worked_off(bench)


def _relaxed(bench: Bench) -> Iterator[Figure]:
    yield _putting(bench, EVERYSEC, Bound(120_000))
    yield _put_many(bench, TEXT, "bytes", Bound(1_200_000))
    yield _put_many(bench, DICTS, "json", Bound(300_000))
    yield _consuming(bench, EVERYSEC, 1, Bound(30_000))
    yield _consuming(bench, EVERYSEC, 100, Bound(200_000))


def _durable(bench: Bench) -> Iterator[Figure]:
    yield _putting(bench, ALWAYS)
    yield _consuming(bench, ALWAYS, 100)


@contextmanager
def _sides(
    bench: Bench, fsync: str, messages: Messages, commands: str, codec: str = "bytes"
) -> Iterator[tuple[TidelogQueue, Commands, list[Peer]]]:
    """The queue, the bare commands under that name, and the peers; all in stores of their own, open and empty."""
    with (
        closing(TidelogQueue(bench.fresh("queue"), messages, fsync=fsync, codec=codec)) as ours,
        closing(Commands(bench.fresh("bare"), messages, fsync=fsync, name=commands)) as bare,
        bench.queues(messages, durable=fsync == ALWAYS) as peers,
    ):
        yield ours, bare, peers


def _putting(bench: Bench, fsync: str, *target: Bound) -> Figure:
    with _sides(bench, fsync, TEXT, "bare XADD") as (ours, bare, peers):
        rates = bench.race([side.adding() for side in [ours, bare, *peers]])
    return Figure(
        f"queue: put one, {fsync}", "/s", rates.pop(ours.name), rates, target, "codec bytes"
    )


def _put_many(bench: Bench, messages: Messages, codec: str, *target: Bound) -> Figure:
    with _sides(bench, EVERYSEC, messages, "bare xadd_many", codec) as (ours, bare, peers):
        sides = [ours.adding_batches(), bare.adding_many()]
        rates = bench.race([*sides, *(peer.adding_batches() for peer in peers)])
    name = f"queue: put_many, {codec}, {EVERYSEC}"
    note = f"{messages.name}; persist-queue and huey have no batches"
    return Figure(name, "/s", rates.pop(ours.name), rates, target, note)


def _consuming(bench: Bench, fsync: str, batch: int, *target: Bound) -> Figure:
    with _sides(bench, fsync, TEXT, "bare commands") as (ours, bare, peers):
        rates = bench.race([side.taking(batch) for side in [ours, bare, *peers]])
    name = f"queue: consume and ack {'one' if batch == 1 else f'by {batch}'}, {fsync}"
    note = "bare: XREADGROUP, XACKDEL; huey has no ack, its dequeue deletes"
    if batch > 1:
        note += "; persist-queue has no batches, litequeue none for claims"
    return Figure(name, "/s", rates.pop(ours.name), rates, target, note)


def _deep(bench: Bench) -> Iterator[Figure]:
    """The same calls on a deep queue and a shallow one. The jobs that a slice consumes are put at the end of the queue
    before it.
    """

    def holding(jobs: int) -> TidelogQueue:
        name = f"{jobs:,} waiting"
        made = TidelogQueue(bench.fresh("deep"), TINY, fsync=EVERYSEC, name=name)
        for start in range(0, jobs, 100_000):
            made.add_batches(min(100_000, jobs - start))
        # Make the checkpoint that the filling triggers now, so that it does not run during the race.
        made.db.checkpoint()
        return made

    with closing(holding(FEW)) as few, closing(holding(bench.scaled(MANY))) as many:
        pairs = {
            "put one": [side.adding_at_depth() for side in (few, many)],
            "consume and ack one": [side.taking(1) for side in (few, many)],
            "consume and ack by 100": [side.taking(100) for side in (few, many)],
        }
        for what, pair in pairs.items():
            rates = bench.race(pair, more_rounds=3, slice_times=0.3)
            yield Figure(
                f"queue: {what}, {many.name}",
                "/s",
                rates[many.name],
                {few.name: rates[few.name]},
                (Bound(0.8, few.name),),
                f"{TINY.name} each, everysec",
            )


def _worked_off(bench: Bench) -> Iterator[Figure]:
    jobs = bench.scaled(WORKED_OFF)
    found = ask("worked-off", bench.fresh("tidelog"), jobs)
    after = f"after {jobs:,} jobs put and worked off"
    yield Figure(
        f"queue: XLEN {after}", "entries", found["left"], {}, (Bound(0, most=True),), "keep=0"
    )
    yield Figure(
        f"queue: the engine's state {after}",
        "B",
        found["state"],
        {"a queue that is new": found["before"]},
        (Bound(MIB, most=True),),
        "every object that can be reached from it",
    )
    yield Figure(
        f"queue: growth of memory {after}",
        "B",
        found["trimmed"],
        {"while they were waiting": found["peak"], "before malloc_trim": found["stayed"]},
        (Bound(0.25, "while they were waiting", most=True),),
        note="RssAnon; what the C library keeps free is given back first, as with a memory_budget",
    )
