"""The durable queue for asyncio: what each method, option and error does; where it differs from threads, and that it
does the same elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing

LONG = 60  # seconds of real time after which a test gives up
LEASE = 30.0


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine function as a test."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), LONG))

    return run


async def take(queue: tidelog.AsyncQueue, worker: str = "anna") -> tidelog.AsyncJob:
    """The next job, which is there."""
    job = await queue.get(worker, block=0)
    assert job is not None
    return job


async def drain(queue: tidelog.AsyncQueue, worker: str = "anna", batch: int = 1) -> list[Any]:
    """The values of all jobs that are due, done."""
    values = []
    async for job in queue.consume(worker, batch, block=0):
        async with job:
            values.append(job.value)
    return values


async def turns(number: int = 20) -> None:
    """Let the other tasks run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def waiting(queue: Any, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a call that waits for a job, and wait until it does."""
    before = (await queue.store.info())["blocked_clients"]
    task = asyncio.create_task(call)
    while (await queue.store.info())["blocked_clients"] == before:
        assert not task.done()
        await asyncio.sleep(0)
    return task


async def putting(queue: tidelog.AsyncQueue, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a put that waits for room, and wait until it does."""
    queue._engine.known.room.clear()
    task = asyncio.create_task(call)
    while not queue._engine.known.room:
        assert not task.done()
        await asyncio.sleep(0)
    return task


# --- putting


@in_loop
async def test_put(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        id = await queue.put({"to": "ann"}, headers={"trace": "7"})
        assert await queue.store.xrange("jobs") == [
            (id.encode(), {b"value": b'{"to":"ann"}', b"header.trace": b"7"})
        ]
        with pytest.raises(tidelog.EncodeError):
            await queue.put(object())
        with pytest.raises(tidelog.DataError, match="headers"):
            await queue.put(1, headers={"a": 1})  # type: ignore[dict-item]


@in_loop
async def test_put_with_a_dedup_id(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock, max_depth=1) as queue:
        first = await queue.put(1, dedup_id="x")
        assert await queue.put(2, dedup_id="x", timeout=0) == first
        assert await drain(queue) == [1]
        clock.advance(86_401)
        assert await queue.put(3, dedup_id="x") != first


@in_loop
async def test_put_many_leaves_the_loop_to_others() -> None:
    async with testing.aqueue("jobs") as queue:
        ran = 0

        async def others() -> None:
            nonlocal ran
            while True:
                ran += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        assert await queue.put_many(range(5_000)) == 5_000
        assert ran >= 5
        task.cancel()
        assert (await queue.stats()).depth == 5_000


@in_loop
async def test_put_many_stores_what_stood_before_a_bad_value() -> None:
    async with testing.aqueue("jobs") as queue:
        values: list[Any] = [*range(1_500), object(), 7]
        with pytest.raises(tidelog.EncodeError) as caught:
            await queue.put_many(values)
        assert caught.value.stored == 1_500
        assert (await queue.stats()).depth == 1_500
        with pytest.raises(tidelog.DataError, match="iterable"):
            await queue.put_many("text")


@in_loop
async def test_a_bounded_queue(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock, max_depth=2) as queue:
        with pytest.raises(tidelog.QueueFull):
            await queue.put_many(range(5), timeout=0)
        with pytest.raises(tidelog.QueueFull):
            await queue.put(9, timeout=0)
        task = await putting(queue, queue.put(2))
        assert await (await take(queue)).ack()
        await task
        late = await putting(queue, queue.put(3, timeout=5))
        clock.advance(5)
        with pytest.raises(tidelog.QueueFull):
            await late
        assert await drain(queue) == [1, 2]


@in_loop
async def test_put_many_waits_for_room() -> None:
    async with testing.aqueue("jobs", max_depth=3) as queue:
        task = await putting(queue, queue.put_many(range(8)))
        seen = []
        async for job in queue.consume("anna"):
            async with job:
                seen.append(job.value)
            if len(seen) == 8:
                break
        assert seen == list(range(8)) and await task == 8


@in_loop
async def test_a_put_that_is_cancelled_while_it_waits_has_put_nothing() -> None:
    async with testing.aqueue("jobs", max_depth=1) as queue:
        await queue.put(1)
        task = await putting(queue, queue.put(2))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await drain(queue) == [1] and await queue.peek() == []


# --- consuming


@in_loop
async def test_a_job_tells_what_it_is(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        id = await queue.put({"to": "ann"}, headers={"trace": "7"})
        job = await take(queue)
        assert (job.value, job.id, job.headers) == ({"to": "ann"}, id, {"trace": "7"})
        assert (job.deliveries, job.worker, job.origin) == (1, "anna", None)
        assert job.enqueued_at == clock.now() and job.state == "open"
        assert repr(queue) == "<AsyncQueue 'jobs', group 'workers'>"
        assert (queue.name, queue.group) == ("jobs", "workers")


@in_loop
async def test_consume_ends_when_it_is_told_to() -> None:
    async with testing.aqueue("jobs") as queue:
        assert await queue.get(block=0) is None
        assert await queue.get(block=0.01) is None
        await queue.put_many(range(3))
        assert await drain(queue) == [0, 1, 2]


@in_loop
async def test_consume_waits_for_a_job(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        task = await waiting(queue, queue.get("anna"))
        clock.advance(86_400)
        await turns()
        assert not task.done()
        await queue.put("at last")
        assert (await task).value == "at last"


@in_loop
async def test_several_tasks_share_the_jobs() -> None:
    async with testing.aqueue("jobs") as queue:
        tasks = [await waiting(queue, queue.get(f"w{n}")) for n in range(4)]
        await queue.put_many(range(4))
        assert sorted(job.value for job in await asyncio.gather(*tasks)) == [0, 1, 2, 3]


@in_loop
async def test_a_task_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    async with testing.aqueue("jobs") as queue:
        task = await waiting(queue, queue.get("anna"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await queue.put(1)
        assert (await take(queue, "ben")).deliveries == 1


@in_loop
async def test_the_acks_of_a_batch_go_together(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        db = queue.store
        await queue.put_many(range(6))
        consumer = queue.consume("anna", 2, block=0)
        async for job in consumer:
            async with job:
                pass
            if job.value == 1:
                break
        assert await db.xlen("jobs") == 6
        async with await anext(consumer):  # the next fetch
            assert await db.xlen("jobs") == 4
        clock.advance(1)  # a beat
        assert await db.xlen("jobs") == 3
        async with await anext(consumer):
            pass
        await consumer.aclose()
        assert await db.xlen("jobs") == 2
        assert await drain(queue, batch=10) == [4, 5]
        assert await db.xlen("jobs") == 0


@in_loop
async def test_a_closed_consumer_gives_back_what_nobody_saw() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put_many(range(3))
        async with queue.consume("anna", 3, block=0) as consumer:
            assert consumer.worker == "anna"
            first = await anext(consumer)
        await consumer.close()
        assert [job async for job in consumer] == []
        found = [(job.value, job.deliveries) async for job in queue.consume("ben", block=0)]
        assert found == [(1, 1), (2, 1)]
        assert await first.ack()


@in_loop
async def test_the_acks_of_a_batch_go_with_the_close_of_the_store(tmp_path: Path) -> None:
    async with tidelog.aqueue(tmp_path / "s", "jobs", fsync="no") as queue:
        await queue.put_many(range(3))
        consumer = queue.consume("anna", 3, block=0)
        async with await anext(consumer):
            pass
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("jobs") == 2


@in_loop
async def test_own_jobs_come_back_after_reopening(tmp_path: Path) -> None:
    async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
        await queue.put_many([1, 2])
        await take(queue)
    async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
        assert (await take(queue, "ben")).value == 2
        job = await take(queue)
        assert (job.value, job.deliveries) == (1, 2)


@in_loop
async def test_a_job_that_cannot_be_decoded_is_dead_and_the_worker_goes_on() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.store.xadd("jobs", {"value": "{"})
        await queue.put("good")
        assert await drain(queue) == ["good"]
        (dead,) = await queue.dead.list()
        assert dead.reason.startswith("DecodeError")


# --- how a job ends


@in_loop
async def test_ack_and_block(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        await queue.put_many([1, 2])
        job = await take(queue)
        assert await job.ack() and await job.ack() and job.state == "acked"
        async with await take(queue) as job:
            assert job.value == 2
        assert job.state == "acked" and await queue.store.xlen("jobs") == 0


@in_loop
async def test_nack(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock, retry_after=LEASE) as queue:
        await queue.put(1)
        assert await (await take(queue)).nack("not now", delay=0)
        job = await take(queue)
        assert job.deliveries == 2 and await job.nack("later", delay=5)
        assert await queue.get("anna", block=0) is None
        clock.advance(5)
        job = await take(queue)
        assert await job.nack(ValueError("no"))
        clock.advance(0.74 * LEASE * 4)
        assert await queue.get("anna", block=0) is None
        clock.advance(0.52 * LEASE * 4)
        assert (await take(queue)).deliveries == 4
        assert [f.error for f in await queue.failures()] == ["ValueError: no", "later", "not now"]


@in_loop
async def test_fail_and_release() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put(1)
        for _ in range(3):
            job = await take(queue)
            assert job.deliveries == 1 and await job.release()
        job = await take(queue)
        assert await job.fail("no") and not await job.ack()
        assert [dead.reason for dead in await queue.dead.list()] == ["no"]


@in_loop
async def test_extend(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock, retry_after=LEASE) as queue:
        await queue.put(1)
        job = await take(queue)
        assert await job.extend(1000)
        del job
        gc.collect()
        clock.advance(999)
        assert await queue.get("ben", block=0) is None
        clock.advance(1)
        assert (await take(queue, "ben")).deliveries == 2


@in_loop
async def test_done_and() -> None:
    async with testing.astore() as db:
        jobs, mails = db.queue("jobs"), db.queue("mails", max_depth=2)
        await jobs.put_many([1, 2])
        assert await (await take(jobs)).done_and(mails.new("a"), mails.new("b", dedup_id="b"))
        job = await take(jobs)
        with pytest.raises(tidelog.QueueFull):
            await job.done_and(mails.new("c"))
        assert job.state == "open"
        assert await drain(mails) == ["a", "b"]
        assert await job.done_and(mails.new("c"))
        assert await drain(mails) == ["c"] and (await jobs.stats()).depth == 0


@in_loop
async def test_a_job_that_was_lost_is_left_alone(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock, retry_after=LEASE) as queue:
        await queue.put(1)
        job = await anext(queue.consume("anna", block=0, time_limit=1))
        clock.advance(2)
        clock.advance(2 * LEASE)
        assert (await take(queue, "ben")).deliveries == 2
        before = await queue.store.digest()
        for call in (job.ack, job.nack, job.fail, job.release, job.done_and):
            assert not await call()
        assert not await job.extend(5)
        assert job.state == "lost" and await queue.store.digest() == before


@in_loop
async def test_an_exception_in_the_block(caplog: pytest.LogCaptureFixture) -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put_many([1, 2])
        async with await take(queue):
            raise ValueError("recorded, logged, swallowed")
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("tidelog.queue", logging.ERROR)
        with pytest.raises(ValueError, match="recorded, raised"):
            async for job in queue.consume("anna", block=0, reraise=True):
                async with job:
                    raise ValueError("recorded, raised")
        assert len(await queue.failures()) == 2 and len(caplog.records) == 1


@in_loop
async def test_a_task_that_is_cancelled_in_the_block_releases_its_job() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put(1)
        began = asyncio.Event()

        async def work() -> None:
            async for job in queue.consume("anna"):
                async with job:
                    began.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await queue.failures() == []
        assert (await take(queue, "ben")).deliveries == 1


@in_loop
async def test_a_timeout_in_the_block_is_a_failure() -> None:
    """asyncio.timeout inside the block ends as TimeoutError, and that is the job's fault."""
    async with testing.aqueue("jobs") as queue:
        await queue.put(1)
        async with await take(queue):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        assert (await queue.failures())[0].error == "TimeoutError"


@in_loop
async def test_a_call_that_is_cancelled_has_settled_its_job(tmp_path: Path) -> None:
    """The await is for the disk; the change was made before."""
    async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
        await queue.put(1)
        job = await take(queue)
        task = asyncio.create_task(job.ack())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert job.state == "acked" and (await queue.stats()).depth == 0


# --- looking


@in_loop
async def test_stats_and_peek(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        await queue.put_many(range(4))
        clock.advance(10)
        held = await take(queue)
        assert await (await take(queue)).nack("not now")
        stats = await queue.stats()
        assert (stats.depth, stats.waiting, stats.in_flight) == (4, 2, {"anna": 1})
        assert (stats.paused, stats.failures, stats.oldest_seconds) == (1, 1, 10)
        assert [job.value for job in await queue.peek()] == [2, 3]
        assert [job.value for job in await queue.peek(1)] == [2]
        assert len(await queue.failures(count=1)) == 1 == len(await queue.failures())
        assert await queue.failures("1-1") == [] and await held.ack()


@in_loop
async def test_the_dead(clock: testing.Clock) -> None:
    async with testing.aqueue("jobs", clock=clock) as queue:
        await queue.put_many(range(120))
        async for job in queue.consume("anna", block=0):
            assert await job.fail(f"no {job.value}")
        dead = [job async for job in queue.dead]
        assert [job.value for job in dead] == list(range(120))
        assert await queue.dead.count() == 120
        assert [job.value for job in await queue.dead.list(2)] == [0, 1]
        assert [job.value for job in await queue.dead.list(1, lambda job: job.value > 5)] == [6]
        found = await queue.dead.get(dead[7].id)
        assert found is not None and found.value == 7 and await queue.dead.get("1-1") is None
        assert await queue.dead.redrive(dry_run=True) == 120
        assert await queue.dead.redrive(dead[0].id) == 1
        assert await queue.dead.redrive([dead[0].id, dead[1].id]) == 1
        assert await queue.dead.redrive(where=lambda job: job.value < 4) == 2
        assert await drain(queue) == [0, 1, 2, 3]
        clock.advance(60)
        assert await queue.dead.purge(older_than=61) == 0
        assert await queue.dead.purge(where=lambda job: job.value == 4) == 1
        assert await queue.dead.purge(older_than=60) == 115
        assert await queue.dead.redrive() == 0 == await queue.dead.count()


@in_loop
async def test_purge() -> None:
    async with testing.aqueue("jobs") as queue:
        assert await queue.purge() == 0
        await queue.put_many(range(1_500))
        job = await take(queue)
        assert await (await take(queue)).nack("not now")
        assert await queue.purge() == 1_499
        assert (await queue.stats()).depth == 1 and await job.ack()


# --- the rest


@in_loop
async def test_aqueue_opens_a_store_and_closes_it(tmp_path: Path) -> None:
    queue = await tidelog.aqueue(tmp_path / "s", "jobs", codec="str")
    await queue.put("a")
    with pytest.raises(tidelog.StoreLocked):
        await tidelog.aopen(tmp_path / "s")
    await queue.aclose()
    await queue.close()
    with pytest.raises(tidelog.StoreClosed):
        await queue.put("b")
    async with tidelog.aqueue(tmp_path / "s", "jobs", codec="str") as again:
        assert await drain(again) == ["a"]
    assert again.store.closed
    with pytest.raises(tidelog.DataError, match="retry_after"):
        tidelog.aqueue(tmp_path / "other", "jobs", retry_after=0)


@in_loop
async def test_a_queue_of_an_open_store_does_not_close_it() -> None:
    async with testing.astore() as db:
        async with db.queue("jobs") as queue:
            await queue.put(1)
        assert not db.closed and (await queue.stats()).depth == 1


@in_loop
async def test_views(tmp_path: Path) -> None:
    async with tidelog.aopen(tmp_path / "s", decode_responses=True) as db:
        third = db.db(3).queue("jobs")
        await third.put("third")
        assert await db.queue("jobs").peek() == []
        view = db.at("written").receipts()
        await view.queue("jobs").put("zero", dedup_id="x")
        assert view.last_receipt is not None
        assert await drain(db.queue("jobs")) == ["zero"] and await drain(third) == ["third"]


@in_loop
async def test_a_read_only_store(tmp_path: Path) -> None:
    async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
        await queue.put_many([1, 2])
        assert await (await take(queue)).fail("no")
        async with tidelog.aopen(tmp_path / "s", read_only=True) as reader:
            seen = reader.queue("jobs")
            assert (await seen.stats()).depth == 1 and await seen.dead.count() == 1
            assert [job.value for job in await seen.peek()] == [2]
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: seen.put(1),
                lambda: seen.put_many([1]),
                lambda: seen.get(block=0),
                lambda: seen.purge(),
                lambda: seen.dead.redrive(),
            ]
            for call in calls:
                with pytest.raises(tidelog.ReadOnlyError):
                    await call()


@in_loop
async def test_neither_queues_nor_jobs_pickle() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put(1)
        for each in (queue, await take(queue)):
            with pytest.raises(TypeError):
                pickle.dumps(each)


@in_loop
async def test_a_blocked_loop_keeps_its_jobs(clock: testing.Clock) -> None:
    """Leases are renewed by a thread (here by the one that moves the clock), whatever the loop does."""
    async with testing.aqueue("jobs", clock=clock, retry_after=LEASE) as queue:
        await queue.put(1)
        job = await take(queue)
        for _ in range(100):
            clock.advance(LEASE / 3)
        assert await queue.get("ben", block=0) is None
        assert job.deliveries == 1 and await job.ack()


@in_loop
async def test_a_closed_store_ends_every_wait(tmp_path: Path) -> None:
    db = await tidelog.aopen(tmp_path / "s", fsync="no")
    full = db.queue("full", max_depth=1)
    await full.put(1)
    getting = await waiting(db.queue("jobs"), db.queue("jobs").get())
    late = await putting(full, full.put(2))
    await db.aclose()
    with pytest.raises(tidelog.StoreClosed):
        await getting
    with pytest.raises(tidelog.StoreClosed):
        await late


async def _values(queue: tidelog.AsyncQueue) -> AsyncIterator[Any]:
    async for job in queue.consume("anna", block=0):
        async with job:
            yield job.value


@in_loop
async def test_an_async_generator_that_is_closed_in_the_block_releases_its_job() -> None:
    async with testing.aqueue("jobs") as queue:
        await queue.put(1)
        values = _values(queue)
        assert await anext(values) == 1
        await values.aclose()  # type: ignore[attr-defined]
        assert (await take(queue, "ben")).deliveries == 1
