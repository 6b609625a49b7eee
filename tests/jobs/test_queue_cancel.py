"""Cancelled tasks and Ctrl-C, at every place where they can strike: nothing lost, nothing twice, nothing left held."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.jobs.interrupts import QueueTrap
from tests.rounds import rest_slow, slow_and_soak, some_and_all

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk

RETRY_AFTER = 8.0
TOTAL = 4
ROOT = Path("/store")
SEGMENT = 1 << 16  # small, since a store is opened for each line


# --- what must be true afterwards, for both faces


LANES = (0, 2, 9)
SHAPES = ("plain", "lanes", "keys")  # jobs have priorities; one job of a key at a time


def numbers(db: tidelog.Store, name: str) -> Counter[int]:
    """The jobs that the lanes of a queue hold."""
    lanes = (f"{name}:priority:{lane}" if lane else name for lane in LANES)
    found = (fields for lane in lanes for _, fields in db.xrange(lane))
    return Counter(json.loads(fields[b"value"])["n"] for fields in found)


def others_still_work(db: tidelog.Store) -> None:
    """From another thread, which would hang if a lock were left held."""
    failed = list[BaseException]()

    def work() -> None:
        try:
            queue: Any = db.queue("others")
            queue.put({"n": 0})
            job = queue.get("x", block=0)
            assert job is not None and job.ack() and queue.stats().depth == 0
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "a lock is still held"
    assert not failed, failed


def work_off(
    db: tidelog.Store, clock: testing.Clock, total: int = TOTAL, per_key: int | None = None
) -> None:
    """Whatever happened: the next workers get all that is unfinished, and each effect is there once."""
    gc.collect(1)  # what the interrupt left is young, and this happens after each line
    others_still_work(db)
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER, concurrency_per_key=per_key)
    effects: Any = db.queue("effects")
    done, left = numbers(db, "effects"), numbers(db, "jobs")
    dead = Counter(job.value["n"] for job in queue.dead)
    assert all(count == 1 for count in (done + left + dead).values()), (done, left, dead)
    given = 0
    for worker in ("w", "heir") * 3:
        while (job := queue.get(worker, block=0)) is not None:
            given += 1
            assert given <= total, "more than there was"
            assert job.value["n"] in left, "it was done, and is delivered again"
            assert job.done_and(effects.new(job.value)) is True
        clock.advance(RETRY_AFTER * 2)
    stats = queue.stats()
    assert stats.depth == 0, f"nobody gets it any more: {stats}"
    assert not numbers(db, "jobs") and db.xlen("jobs:holds") == 0
    now = numbers(db, "effects")
    assert now == done + left
    assert not inside.waiters(db), "somebody is parked whom nobody waits for"


# --- Ctrl-C at every line


Work = Callable[[Any, Any], object]


def consume_and_ack(queue: Any, effects: Any) -> None:
    for job in queue.consume("w", block=0):
        if job.done_and(effects.new(job.value)):
            pass


def consume_in_blocks(queue: Any, effects: Any) -> None:
    with queue.consume("w", block=0) as jobs:
        for job in jobs:
            with job:
                pass


def consume_a_batch(queue: Any, effects: Any) -> None:
    with queue.consume("w", batch=3, block=0) as jobs:
        for job in jobs:
            job.ack()


def leave_a_batch(queue: Any, effects: Any) -> None:
    with queue.consume("w", batch=4, block=0) as jobs:
        next(jobs).ack()
        next(jobs)


def get_and_ack(queue: Any, effects: Any) -> None:
    while (job := queue.get("w", block=0)) is not None:
        job.ack()


def get_and_nack(queue: Any, effects: Any) -> None:
    queue.get("w", block=0).nack("no")
    queue.get("w", block=0).nack(ValueError("no"), delay=1.0)


def raise_in_a_block(queue: Any, effects: Any) -> None:
    with queue.get("w", block=0):
        raise ValueError("no")


def fail(queue: Any, effects: Any) -> None:
    queue.get("w", block=0).fail("no")


def release(queue: Any, effects: Any) -> None:
    queue.get("w", block=0).release()
    queue.get("w", block=0).release()


def extend(queue: Any, effects: Any) -> None:
    job = queue.get("w", block=0)
    job.extend(20)
    job.extend(1)
    job.ack()


def redrive(queue: Any, effects: Any) -> None:
    queue.get("w", block=0).fail("no")
    queue.get("w", block=0).fail("no")
    queue.dead.redrive()


SILENT = (consume_in_blocks, consume_a_batch, leave_a_batch, get_and_ack, extend)  # done, no effect
WORKS: list[Work] = [
    consume_and_ack,
    leave_a_batch,
    raise_in_a_block,
    release,
    redrive,
    *(consume_in_blocks, consume_a_batch, get_and_ack, get_and_nack, extend, fail),
]


def interrupted(work: Work, at: int, seen: set[str] | None = None, shape: str = "plain") -> str:
    """One life with one interrupt. Where it struck, "" if the work has fewer lines. `shape`: see SHAPES."""
    clock = testing.Clock()
    with tidelog.open(
        ROOT, fsync="no", disk=SimulatedDisk(), clock=clock, segment_bytes=SEGMENT
    ) as db:
        per_key = 1 if shape == "keys" else None
        queue: Any = db.queue("jobs", retry_after=RETRY_AFTER, concurrency_per_key=per_key)
        effects: Any = db.queue("effects")
        for number in range(TOTAL):
            priority = LANES[number % len(LANES)] if shape == "lanes" else 0
            key = f"{number // 2}" if shape == "keys" and number > 1 else None
            queue.put({"n": number}, priority=priority, key=key)
        effects.put({"n": -1})  # the stream is there
        trap = QueueTrap(at, seen or ())
        told = trap.breaks(lambda: work(queue, effects))
        try:
            assert told == (bool(trap.where) and not trap.swallowed), "swallowed"
            assert not trap.unraisable
            lost = set(range(TOTAL)) - set(numbers(db, "jobs")) - set(numbers(db, "effects"))
            lost -= {job.value["n"] for job in queue.dead}
            assert not lost or work in SILENT, f"lost: {lost}"
            work_off(db, clock, per_key=per_key)
        except BaseException as error:
            error.add_note(f"interrupted at {trap.where}")
            raise
    return trap.where


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", rest_slow(WORKS, 1))
def test_an_interrupt_in_every_line(work: Work, shape: str) -> None:
    """Each line once, when it is first come to."""
    places = set[str]()
    while where := interrupted(work, 0, places, shape):
        places.add(where)
    assert len(places) > 15
    print(f"{len(places)} lines")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("every", slow_and_soak(7, 1))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", WORKS)
def test_an_interrupt_at_every_line(work: Work, shape: str, every: int) -> None:
    """Each line, as often as it is come to."""
    at = 0
    while interrupted(work, at, shape=shape):
        at += every
    assert at > 50
    print(f"{at} interrupts")


@pytest.mark.parametrize("every", some_and_all(3, 1))
def test_an_interrupt_while_waiting_for_a_job(every: int) -> None:
    """At every line before and after the sleep; the job comes while it waits."""
    at = 0
    while True:
        clock = testing.Clock()
        with tidelog.open(
            ROOT, fsync="no", disk=SimulatedDisk(), clock=clock, segment_bytes=SEGMENT
        ) as db:
            queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
            db.queue("effects").put({"n": -1})

            def put() -> None:
                while not stop.is_set():
                    if db.info()["blocked_clients"]:
                        queue.put({"n": 0})
                        return
                    stop.wait(0.0005)

            stop = threading.Event()
            putter = threading.Thread(target=put)
            putter.start()
            trap = QueueTrap(at)
            job: Any = None

            def work() -> None:
                nonlocal job
                job = queue.get("w")

            trap.breaks(work)
            stop.set()
            putter.join()
            if job is None and not db.exists("jobs"):
                queue.put({"n": 0})
            if not trap.where:
                assert job.value == {"n": 0}
                break
            job = None
            try:
                work_off(db, clock, 1)
            except BaseException as error:
                error.add_note(f"interrupted at {trap.where}")
                raise
        at += every
    assert at > 10


# --- a cancellation at every await


class Cut(Awaitable[Any]):
    """Runs a coroutine and throws CancelledError into its `at`-th await.

    late    only after what it awaited has come: the cancellation and the result race, as in real life
    """

    def __init__(self, work: Awaitable[Any], at: int, late: bool) -> None:
        self.work, self.left, self.late = work, at, late
        self.struck = False

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self.work.__await__()
        error: BaseException | None = None
        while True:
            try:
                awaited = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                return end.value
            error = None
            strike = self.left == 0 and not self.struck
            self.left -= 1
            if strike:
                self.struck = True
                error = asyncio.CancelledError()
                if not self.late:
                    if awaited is not None:
                        awaited._asyncio_future_blocking = False
                        awaited.cancel()
                    continue
            try:
                yield awaited
            except BaseException as outer:
                error = error or outer


async def a_consume_and_done(queue: Any, effects: Any) -> None:
    async with queue.consume("w", block=0) as jobs:
        async for job in jobs:
            await job.done_and(effects.new(job.value))


async def a_consume_in_blocks(queue: Any, effects: Any) -> None:
    async for job in queue.consume("w", block=0):
        async with job:
            await asyncio.sleep(0)


async def a_consume_a_batch(queue: Any, effects: Any) -> None:
    async with queue.consume("w", batch=3, block=0) as jobs:
        async for job in jobs:
            async with job:
                pass


async def a_get_and_ack(queue: Any, effects: Any) -> None:
    while (job := await queue.get("w", block=0)) is not None:
        await job.ack()


async def a_nack(queue: Any, effects: Any) -> None:
    await (await queue.get("w", block=0)).nack("no")
    async with await queue.get("w", block=0):
        raise ValueError("no")


async def a_fail_and_redrive(queue: Any, effects: Any) -> None:
    await (await queue.get("w", block=0)).fail("no")
    await queue.dead.redrive()


async def a_release(queue: Any, effects: Any) -> None:
    job = await queue.get("w", block=0)
    await job.extend(20)
    await job.release()


async def a_put(queue: Any, effects: Any) -> None:
    await effects.put({"n": 1000})
    await effects.put_many({"n": n} for n in range(1001, 1004))


A_SILENT = (a_consume_in_blocks, a_consume_a_batch, a_get_and_ack)
A_WORKS = [a_consume_and_done, *A_SILENT, a_nack, a_fail_and_redrive, a_release]


async def cancelled(path: Path, work: Any, at: int, late: bool) -> bool:
    clock = testing.Clock()
    async with tidelog.aopen(path, fsync="always", clock=clock) as adb:
        queue: Any = adb.queue("jobs", retry_after=RETRY_AFTER)
        effects: Any = adb.queue("effects")
        await queue.put_many({"n": n} for n in range(TOTAL))
        await effects.put({"n": -1})
        cut = Cut(work(queue, effects), at, late)
        try:
            await cut
            assert not cut.struck, "it went on as if it were not cancelled"
        except asyncio.CancelledError:
            assert cut.struck
        db = tidelog.Store(inside.core(adb), decode=False)
        await asyncio.sleep(0)
        lost = set(range(TOTAL)) - set(numbers(db, "jobs")) - set(numbers(db, "effects"))
        lost -= {job.value["n"] for job in db.queue("jobs").dead}
        assert not lost or work in A_SILENT, f"lost: {lost}"
        await asyncio.to_thread(work_off, db, clock)
    return cut.struck


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("work", A_WORKS)
def test_a_cancellation_at_every_await(tmp_path: Path, work: Any, late: bool) -> None:
    at = 0
    while asyncio.run(cancelled(tmp_path / f"{at}", work, at, late)):
        at += 1
    assert at > 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("work", ["get", "consume"])
def test_a_cancellation_while_waiting_for_a_job(tmp_path: Path, work: str, late: bool) -> None:
    async def life(at: int) -> bool:
        clock = testing.Clock()
        async with tidelog.aopen(tmp_path / f"{at}", fsync="always", clock=clock) as adb:
            queue: Any = adb.queue("jobs", retry_after=RETRY_AFTER)
            await adb.queue("effects").put({"n": -1})

            async def get() -> Any:
                if work == "get":
                    return await queue.get("w")
                async with queue.consume("w") as jobs:
                    async for job in jobs:
                        return job

            async def run() -> Any:
                try:
                    return await cut
                except asyncio.CancelledError:
                    return None

            cut = Cut(get(), at, late)
            task = asyncio.ensure_future(run())
            while not task.done() and not inside.waiters(adb):
                await asyncio.sleep(0)
            await queue.put({"n": 0})
            job = await asyncio.wait_for(task, 60)
            assert (job is None) == cut.struck
            del job, task
            db = tidelog.Store(inside.core(adb), decode=False)
            await asyncio.to_thread(work_off, db, clock, 1)
        return cut.struck

    at = 0
    while asyncio.run(life(at)):
        at += 1
    assert at > 0


# --- at random, many at once


async def cancel_at_random(path: Path, policy: str, rounds: int, seed: int) -> tuple[int, int]:
    dice, clock = random.Random(seed), testing.Clock()
    taken: Counter[int] = Counter()
    total = rounds * 3
    async with tidelog.aopen(path, fsync=policy, clock=clock) as adb:
        queue: Any = adb.queue("jobs", retry_after=RETRY_AFTER, max_deliveries=100_000)
        effects = adb.queue("effects")

        async def worker(name: str, batch: int) -> None:
            async with queue.consume(name, batch) as jobs:
                async for job in jobs:
                    number = job.value["n"]
                    taken[number] += 1
                    way = dice.random()
                    if way < 0.2:
                        async with job:
                            await asyncio.sleep(0)
                            raise ValueError("on purpose")
                    elif way < 0.3:
                        await asyncio.sleep(dice.random() / 1000)
                    assert await job.done_and(effects.new({"n": number})) is (way >= 0.2)

        await queue.put_many({"n": n} for n in range(total))
        tasks: dict[str, asyncio.Task[None]] = {}
        names = 0
        cancelled = 0
        while cancelled < rounds:
            while len(tasks) < 6:
                names += 1
                name = f"w{names % 4}" if dice.random() < 0.5 else f"n{names}"
                if name not in tasks:
                    tasks[name] = asyncio.create_task(worker(name, dice.choice((1, 1, 4))))
            for _ in range(dice.randrange(12)):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                await asyncio.sleep(0.001)
            if dice.random() < 0.5:
                clock.advance(dice.choice((0.1, RETRY_AFTER / 2, RETRY_AFTER * 2)))
            name = dice.choice(list(tasks))
            task = tasks.pop(name)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=60)
            assert done, "a cancelled worker hangs"
            if not task.cancelled():
                task.result()  # what it raised
                raise AssertionError("a worker ended by itself")
            cancelled += 1
            if (await queue.stats()).depth < total // 10:
                await queue.put_many({"n": n} for n in range(total, total + rounds))
                total += rounds
        deliveries = taken.total()
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values())
        tasks.clear()
        del task, done
        db = tidelog.Store(inside.core(adb), decode=False)

        def finish() -> None:
            db.queue("effects").put({"n": -1})
            for _ in range(3):
                clock.advance(4000)
            work_off_many(db, clock)
            assert numbers(db, "effects") == Counter(range(-1, total))

        await asyncio.to_thread(finish)
    return deliveries, total


def work_off_many(db: tidelog.Store, clock: testing.Clock) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER, max_deliveries=100_000)
    effects = db.queue("effects")
    gc.collect()
    others_still_work(db)
    for _ in range(3):
        while (job := queue.get("heir", block=0)) is not None:
            assert job.done_and(effects.new(job.value))
        clock.advance(5000)
    assert queue.stats().depth == 0 == queue.stats().dead
    assert db.xlen("jobs") == 0 and db.xlen("jobs:holds") == 0
    assert not inside.waiters(db)


@pytest.mark.parametrize("policy", ["no", "always"])
def test_cancelled_workers(tmp_path: Path, policy: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    print(asyncio.run(cancel_at_random(tmp_path / "s", policy, 25, seed)))


@pytest.mark.parametrize("policy", ["no", "everysec", "always"])
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.soak if n else pytest.mark.slow) for n in range(5)]
)
def test_a_hundred_cancelled_workers(tmp_path: Path, policy: str, seed: int) -> None:
    print(asyncio.run(cancel_at_random(tmp_path / "s", policy, 100, seed)))
