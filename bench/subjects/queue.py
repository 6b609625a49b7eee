"""The durable queue beside other queues; ten million waiting jobs beside a thousand; the memory left after a million
done jobs.

Every job has 100 bytes unless its row says otherwise, and is gone when it is done (keep=0).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.figure import Bound, Figure
from bench.messages import MESSAGES
from bench.ours import DRAINED, QUEUE, Commands, Jobs
from bench.race import WALL, each, medians
from bench.run import ALWAYS, EVERYSEC, QUEUES, Run
from bench.worker import Worker

MANY, FEW = 10_000_000, 1_000
WORKED_OFF = 1_000_000
FILLED = 100_000  # at once
MIB = 1 << 20


def rows(run: Run) -> Iterator[Figure]:
    yield _putting(run, EVERYSEC, Bound(120_000))
    yield _put_many(run, "TEXT", "bytes", Bound(1_200_000))
    yield _put_many(run, "DICTS", "json", Bound(300_000))
    yield _consuming(run, EVERYSEC, 1, Bound(30_000))
    yield _consuming(run, EVERYSEC, 100, Bound(200_000))
    yield _putting(run, ALWAYS)
    yield _consuming(run, ALWAYS, 100)
    yield from _deep(run)
    yield from _worked_off(run)


@contextmanager
def _sides(
    run: Run, fsync: str, messages: str, commands: str, codec: str = "bytes"
) -> Iterator[tuple[list[Worker], list[Worker], list[Worker]]]:
    """The queue, the bare commands under that name, and the peers; all in stores of their own, open and empty."""
    with (
        run.sides(Jobs, messages, fsync, codec) as ours,
        run.sides(Commands, messages, fsync, name=commands) as bare,
        run.peers(QUEUES, messages, durable=fsync == ALWAYS) as peers,
    ):
        yield ours, bare, peers


def _clock(fsync: str) -> int | None:
    return WALL if fsync == ALWAYS else None


def _putting(run: Run, fsync: str, *target: Bound) -> Figure:
    with _sides(run, fsync, "TEXT", "bare XADD") as (ours, bare, peers):
        rates = run.race(each([*ours, *bare, *peers], "add"), clock=_clock(fsync))
    return Figure.of(f"queue: put one, {fsync}", "/s", rates, *target, note="codec bytes")


def _put_many(run: Run, messages: str, codec: str, *target: Bound) -> Figure:
    with _sides(run, EVERYSEC, messages, "bare xadd_many", codec) as (ours, bare, peers):
        batches = each([*ours, *peers], "add_batches", quantum=1_000)
        rates = run.race([*batches, *each(bare, "add_many", quantum=1_000)])
    note = f"{MESSAGES[messages].name}; persist-queue and huey have no batches"
    return Figure.of(f"queue: put_many, {codec}, {EVERYSEC}", "/s", rates, *target, note=note)


def _consuming(run: Run, fsync: str, batch: int, *target: Bound) -> Figure:
    with _sides(run, fsync, "TEXT", "bare commands") as (ours, bare, peers):
        sides = each([*ours, *bare, *peers], "take", quantum=max(batch, 10), at_once=batch)
        rates = run.race(sides, clock=_clock(fsync))
    name = f"queue: consume and ack {'one' if batch == 1 else f'by {batch}'}, {fsync}"
    note = "bare: XREADGROUP, XACKDEL; huey has no ack, its dequeue deletes"
    if batch > 1:
        note += "; persist-queue has no batches, litequeue none for claims"
    return Figure.of(name, "/s", rates, *target, note=note)


def _deep(run: Run) -> Iterator[Figure]:
    """The same calls on a deep queue and a shallow one. The jobs that a slice consumes are put at the end of the queue
    before it.
    """
    many, few = run.scaled(MANY), FEW
    deep, shallow = f"{many:,} waiting", f"{few:,} waiting"
    with (
        run.sides(Jobs, "TINY", EVERYSEC, name=deep) as deeps,
        run.sides(Jobs, "TINY", EVERYSEC, name=shallow) as shallows,
    ):
        for workers, jobs in ((deeps, many), (shallows, few)):
            for worker in workers:
                for start in range(0, jobs, FILLED):
                    worker.call("add_batches", min(FILLED, jobs - start))
                worker.call("checkpoint")
        sides = [*deeps, *shallows]
        calls = {
            "put one": each(sides, "add_here", quantum=DRAINED),
            "consume and ack one": each(sides, "take", quantum=10, at_once=1),
            "consume and ack by 100": each(sides, "take", quantum=100, at_once=100),
        }
        for what, contenders in calls.items():
            rates = run.race(contenders, more_rounds=3, slice_times=0.3)
            yield Figure.of(
                f"queue: {what}, {deep}",
                "/s",
                rates,
                Bound(0.8, shallow),
                note="16 bytes each, everysec",
                measured=deep,
            )


def _worked_off(run: Run) -> Iterator[Figure]:
    """Entries that are left, and growth of memory, after the same jobs were put and done as a thousand before."""
    jobs = run.scaled(WORKED_OFF)
    left: dict[tuple[str, int], list[float]] = {}
    with run.sides(Jobs, "TEXT", EVERYSEC) as ours:
        for worker in ours:
            worker.call("add_batches", FEW)
            worker.call("take", FEW, 100)
            before = worker.anonymous()
            for _ in range(jobs // FEW):
                worker.call("add_batches", FEW)
            left["while they were waiting", worker.version] = [worker.anonymous() - before]
            worker.call("take", jobs // FEW * FEW, 100)
            entries = worker.call("left", QUEUE)
            if entries:
                raise RuntimeError(f"{entries} entries are left after all jobs are done")
            worker.call("trim")
            left[worker.name, worker.version] = [worker.anonymous() - before]
    waiting = "while they were waiting"
    yield Figure.of(
        f"queue: growth of memory after {jobs:,} jobs put and worked off",
        "B",
        medians(left),
        Bound(0.25, waiting, most=True),
        note="RssAnon; what the C library keeps free is given back first; no entry is left in the stream",
    )
