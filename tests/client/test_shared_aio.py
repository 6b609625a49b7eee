"""The faces of a shared store for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.until import until

import tidelog
from tidelog.client.consumer import SharedConsumer


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_the_store(bench: Bench) -> None:
    async def work() -> None:
        async with tidelog.aconnect(bench.root, decode_responses=True) as db:
            id = await db.xadd("s", {"a": 1}, id="1-1")
            assert await db.xrange("s") == [(id, {"a": "1"})]
            assert await db.db(1).get("k") is None
            assert await db.at("fsynced").set("k", "v")
            await db.barrier()
            assert (await db.snapshot()).path.parent.parent == bench.root
            assert await db.execute_command("GET", "k") == "v"
            assert list(await db.xadd_many("s", [{"b": 1}])) != []
            assert await db.ping() and (await db.info())["redis_version"]
            with pytest.raises(tidelog.ResponseError, match="WRONGTYPE|wrong kind"):
                await db.xlen("k")
        assert db.closed

    run(work())


def test_pipelines_and_transactions(bench: Bench) -> None:
    async def work() -> None:
        async with tidelog.aconnect(bench.root, decode_responses=True) as db:
            async with db.pipeline() as pipe:
                assert pipe.set("n", 1).incr("n").xadd("s", {"a": "b"}, id="1-1") is pipe
                pipe.execute_command("XLEN", "s")
                assert len(pipe) == 4 and await pipe.execute() == [True, 2, "1-1", 1]
            async with db.pipeline() as pipe:
                await pipe.watch("n")
                assert pipe.watching and await pipe.get("n") == "2"
                assert await pipe.xadd("s", {"c": "d"}, id="2-0") == "2-0"
                pipe.multi()
                pipe.incr("n")
                await db.set("n", 7)
                with pytest.raises(tidelog.WatchError):
                    await pipe.execute()

            async def double(pipe: Any) -> None:
                value = int(await pipe.get("n"))
                pipe.multi()
                pipe.set("n", 2 * value)

            assert await db.transaction(double, "n") == [True]
            assert sorted([name async for name in db.scan_iter("?")]) == ["n", "s"]
            assert await db.config_set("appendfsync", "no")
            assert await db.config_get("appendfsync") == {"appendfsync": "no"}
            seconds, _ = await db.time()
            assert seconds == bench.db.time()[0]
            assert await db.checkpoint() == bench.db.info()["checkpoint_lsn"]
            assert await db.close() == 0 and db.closed

    run(work())


def test_views_do_not_disconnect(bench: Bench) -> None:
    async def work() -> None:
        async with tidelog.aconnect(bench.root) as db:
            async with db.db(1) as other:
                assert await other.ping()
            queue = db.queue("q")
            assert queue.store is db and await queue.close() == 0
            assert await db.ping()
        assert db.closed

    run(work())


def test_closing_waits_for_the_jobs_of_other_tasks_alone(bench: Bench) -> None:
    async def work() -> None:
        db = await tidelog.aconnect(bench.root)
        queue = db.queue("q")
        await queue.put_many([1, 2])
        mine = await queue.get(block=0)
        assert mine is not None  # in the hands of the task that closes
        entered, go = asyncio.Event(), asyncio.Event()

        async def other() -> None:
            job = await queue.get(block=0)
            assert job is not None
            async with job:
                entered.set()
                await go.wait()

        task = asyncio.create_task(other())
        await entered.wait()

        async def end() -> None:
            await asyncio.to_thread(until, lambda: db._store._keeper._draining, "it does not drain")
            assert not db.closed
            go.set()

        ending = asyncio.create_task(end())
        assert await db.aclose(drain=None) == 0 and db.closed
        await asyncio.gather(task, ending)
        assert (await asyncio.to_thread(bench.db.queue("q").stats)).depth == 1

    run(work())


def test_a_cancelled_close_closes_at_once(bench: Bench) -> None:
    async def work() -> None:
        db = await tidelog.aconnect(bench.root)
        queue = db.queue("q")
        await queue.put(1)
        job = await asyncio.create_task(queue.get(block=0))
        assert job is not None

        async def hold() -> None:
            async with job:
                await asyncio.Event().wait()

        holder = asyncio.create_task(hold())
        await asyncio.sleep(0)  # it enters
        closing = asyncio.create_task(db.aclose(drain=None))
        await asyncio.to_thread(until, lambda: db._store._keeper._draining, "it does not drain")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.to_thread(until, lambda: db.closed, "it was not closed")
        holder.cancel()
        with pytest.raises((asyncio.CancelledError, tidelog.StoreClosed)):
            await holder

    run(work())


def test_the_queue(bench: Bench) -> None:
    async def work() -> None:
        async with tidelog.aqueue(bench.root, "q", shared=True, max_deliveries=1) as queue:
            await queue.subscribe()
            assert await queue.put_many([1, 2]) == 2
            id = await queue.put(3, headers={"k": "t"})
            assert [job.value for job in await queue.peek()] == [1, 2, 3]
            seen = []
            async for job in queue.consume(batch=2, block=0):
                async with job:
                    seen.append((job.value, job.deliveries, job.headers, job.origin))
            assert [value for value, *_ in seen] == [1, 2, 3] and seen[2][2] == {"k": "t"}
            await queue.put(4)
            found = await queue.get("w", block=0)
            assert found is not None and await found.extend(5)
            assert await found.done_and(queue.new(5)) and found.state == "acked"
            last = await queue.get(block=0)
            assert last is not None and await last.release()
            last = await queue.get(block=0)
            assert last is not None and await last.nack("boom")
            assert [f.error for f in await queue.failures()] == ["boom"]
            assert (await queue.stats()).dead == await queue.dead.count() == 1
            (dead,) = await queue.dead.list()
            assert [job.id async for job in queue.dead] == [dead.id]
            same = await queue.dead.get(dead.id)
            assert same is not None and same.value == 5 and same.original_id != id
            assert await queue.dead.redrive() == 1
            last = await queue.get(block=0)
            assert last is not None and last.origin == dead.original_id
            assert await last.fail() and await queue.dead.purge() == 1
            assert await queue.purge() == 0

    run(work())


def test_a_cancelled_consumer_takes_nothing(bench: Bench) -> None:
    server = bench.serving.server
    assert server is not None

    async def work() -> None:
        async with tidelog.aconnect(bench.root) as db:
            queue = db.queue("q")
            await queue.subscribe()
            consumer = queue.consume("w")
            waiting = asyncio.create_task(consumer.__anext__())
            await asyncio.to_thread(until, lambda: server.blocked, "it does not wait")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(until, lambda: not server.blocked, "it still waits")
            await queue.put(1)
            job = await consumer.__anext__()
            assert job.value == 1 and await job.ack()
            await consumer.aclose()

    run(work())


def test_a_wait_that_is_cancelled_before_it_asks_asks_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may be slow to begin, on a busy machine. It would wait for a job that nobody wants."""
    begins, go, interrupted = threading.Event(), threading.Event(), threading.Event()
    fetch, interrupt = SharedConsumer._fetch, SharedConsumer.interrupt

    def slow(consumer: Any, *args: Any) -> bool:
        begins.set()
        assert go.wait(60)
        return fetch(consumer, *args)

    def told(consumer: Any, *args: Any) -> None:
        interrupt(consumer, *args)
        interrupted.set()

    monkeypatch.setattr(SharedConsumer, "_fetch", slow)
    monkeypatch.setattr(SharedConsumer, "interrupt", told)

    async def work() -> None:
        async with await tidelog.aconnect(bench.root) as db:
            consumer = db.queue("q").consume("w")
            waiting = asyncio.create_task(consumer.__anext__())
            await asyncio.to_thread(begins.wait, 60)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(interrupted.wait, 60)
            go.set()
            call = consumer._cancelled
            await asyncio.to_thread(until, lambda: call is None or call.done(), "it waits")
            await db.queue("q").put(1)
            job = await anext(consumer)
            assert (job.value, job.deliveries) == (1, 1) and await job.ack()

    run(work())


def test_a_cancelled_wait_ends_no_other_one_of_its_consumer(bench: Bench) -> None:
    server = bench.serving.server
    assert server is not None

    async def work() -> None:
        async with await tidelog.aconnect(bench.root) as db:
            queue = db.queue("q")
            await queue.subscribe()
            consumer = queue.consume("w")
            waits = [asyncio.create_task(consumer.__anext__()) for _ in range(3)]
            await asyncio.to_thread(until, lambda: server.blocked == 3, "they do not wait")
            waits[1].cancel()
            await asyncio.to_thread(until, lambda: server.blocked == 2, "it still waits")
            await queue.put_many([1, 2])
            jobs = [await waits[0], await waits[2]]
            assert sorted(job.value for job in jobs) == [1, 2]
            assert all([await job.ack() for job in jobs])

    run(work())


def test_an_exception_in_a_block_is_recorded(bench: Bench) -> None:
    async def work() -> None:
        async with tidelog.aqueue(bench.root, "q", shared=True) as queue:
            await queue.put(1)
            async for job in queue.consume(block=0, reraise=True):
                with pytest.raises(ValueError, match="boom"):
                    async with job:
                        raise ValueError("boom")
                assert job.state == "given"
            assert [f.error for f in await queue.failures()] == ["ValueError: boom"]

    run(work())
