"""The faces of a shared store for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.until import until

import tidelog


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
