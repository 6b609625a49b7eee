"""Temporary queues, and that their pauses, leases and waits go by a clock moved by hand."""

from __future__ import annotations

import asyncio
import gc
import logging
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import until

import tidelog
from tidelog import testing

LONG = 60  # seconds of real time after which a test gives up


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def jobs(clock: testing.Clock, pool: ThreadPoolExecutor) -> Iterator[tidelog.Queue]:
    """Closed before the pool waits for its threads, so that a call that still blocks ends."""
    with testing.queue("jobs", clock=clock, retry_after=30, max_deliveries=3) as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "tidelog.queue")


def fail(queue: tidelog.Queue) -> int:
    """Let every job that is due fail; how many there were."""
    count = 0
    for job in queue.consume("anna", block=0):
        with job:
            count += 1
            raise ValueError(f"delivery {job.deliveries}")
    return count


def start(pool: ThreadPoolExecutor, queue: Any, block: float | None) -> Future[Any]:
    """Begin to wait for a job, and wait until that waits."""
    future = pool.submit(queue.get, "ben", block)
    until(lambda: queue.store.info()["blocked_clients"], "it does not park")
    return future


def test_a_queue_is_there_for_the_block_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with testing.queue("jobs") as jobs:
        jobs.put({"n": 1})
        assert len(jobs) == 1 and len(list(tmp_path.iterdir())) == 1
        assert (jobs.name, jobs.group) == ("jobs", "workers")
    assert jobs.store.closed and not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="mine"), testing.queue("jobs") as jobs:
        jobs.put({"n": 1})
        raise ValueError("mine")
    assert jobs.store.closed and not list(tmp_path.iterdir())


def test_a_job_in_hand_does_not_outlive_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with testing.queue("jobs") as jobs:
        jobs.put_many(range(10))
        held = [job for _, job in zip(range(3), jobs.consume(batch=5), strict=False)]
    assert len(held) == 3 and not list(tmp_path.iterdir())


def test_options_are_those_of_a_queue() -> None:
    with testing.queue(
        "jobs",
        "others",
        codec="str",
        max_deliveries=1,
        retry_after=1,
        keep=timedelta(days=1),
        max_depth=1,
        max_failures=1,
        fsync="everysec",
    ) as jobs:
        assert jobs.group == "others" and jobs.store.fsync == "everysec"
        jobs.put("a")
        with pytest.raises(tidelog.QueueFull):
            jobs.put("b", timeout=0)
    with pytest.raises(tidelog.DataError, match="max_deliveries"):
        with testing.queue("jobs", max_deliveries=0):
            pass


def test_jobs_bear_the_clocks_time(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    clock.advance(90)
    id = jobs.put("a")
    assert id == f"{clock.time_ns() // 1_000_000}-0"
    job = jobs.get(block=0)
    assert job is not None and job.enqueued_at == clock.now()
    assert job.enqueued_at == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    clock.advance(15)
    assert jobs.stats().oldest_seconds == pytest.approx(15)


def test_a_retry_comes_after_its_pause_and_not_before(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put("a")
    assert fail(jobs) == 1
    clock.advance(30 * 0.75 - 0.001)
    assert fail(jobs) == 0 and jobs.stats().paused == 1
    clock.advance(30 * 0.5 + 0.001)
    assert fail(jobs) == 1
    clock.advance(60 * 0.75 - 0.001)
    assert fail(jobs) == 0
    clock.advance(60 * 0.5 + 0.001)
    assert fail(jobs) == 1
    (dead,) = jobs.dead
    assert dead.value == "a" and dead.deliveries == 3 and dead.died_at == clock.now()
    assert "delivery 3" in dead.errors[-1].error
    assert jobs.dead.redrive() == 1
    assert fail(jobs) == 1


def test_a_pause_of_ones_own_is_exact(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put("a")
    for pause in (0.1, 0.2):
        job = jobs.get("anna", block=0)
        assert job is not None and job.nack("later", delay=pause)
        clock.advance(pause - 0.001)
        assert jobs.get("anna", block=0) is None
        clock.advance(0.001)
    job = jobs.get("anna", block=0)
    assert job is not None and job.deliveries == 3 and job.ack()


def test_a_dropped_job_is_taken_over_after_its_lease(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put("a")
    job = jobs.get("anna", block=0)
    assert job is not None
    del job
    gc.collect()
    clock.advance(29.9)
    assert jobs.get("ben", block=0) is None
    clock.advance(0.2)
    job = jobs.get("ben", block=0)
    assert job is not None and job.deliveries == 2


def test_a_job_in_hand_keeps_its_lease_for_as_long_as_it_takes(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put("a")
    job = jobs.get("anna", block=0)
    assert job is not None
    for seconds in (29, 31, 3600, 86_400):
        clock.advance(seconds)
        assert jobs.get("ben", block=0) is None
    assert job.ack() and len(jobs) == 0


def test_a_jump_of_the_wall_clock_takes_no_job_and_ends_no_pause(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(["held", "failing"])
    held = jobs.get("anna", block=0)
    assert held is not None and fail(jobs) == 1
    for seconds in (86_400, -200_000):
        clock.jump(seconds)
        assert jobs.get("ben", block=0) is None
    clock.advance(37.5)
    job = jobs.get("ben", block=0)
    assert job is not None and job.value == "failing"
    assert job.ack() and held.ack()


def test_a_waiting_worker_gets_a_retry_when_it_is_due(
    jobs: tidelog.Queue, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    jobs.put("a")
    assert fail(jobs) == 1
    waiting = start(pool, jobs, None)
    clock.advance(20)
    assert not waiting.done() and jobs.store.info()["blocked_clients"] == 1
    clock.advance(17.5)
    job = waiting.result(LONG)
    assert job is not None and job.deliveries == 2


def test_a_waiting_worker_leaves_when_its_time_is_up(
    jobs: tidelog.Queue, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    waiting = start(pool, jobs, 5)
    clock.advance(4.999)
    assert not waiting.done()
    clock.advance(0.001)
    assert waiting.result(LONG) is None


def test_a_put_into_a_full_queue_gives_up_when_its_time_is_up(
    clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    with testing.queue("jobs", clock=clock, max_depth=1) as jobs:
        jobs.put("a")
        putting = pool.submit(jobs.put, "b", timeout=5)
        core: Any = inside.core(jobs.store)
        (known,) = core.queues.known.values()
        until(lambda: known.room)
        clock.advance(5)
        with pytest.raises(tidelog.QueueFull):
            putting.result(LONG)


def test_for_asyncio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> None:
        clock = testing.Clock()
        async with testing.aqueue("jobs", clock=clock, retry_after=30) as jobs:
            await jobs.put("a")
            async for job in jobs.consume("anna", block=0):
                async with job:
                    raise ValueError
            task = asyncio.create_task(jobs.get("ben"))
            while not (await jobs.store.info())["blocked_clients"]:
                await asyncio.sleep(0)
            clock.advance(22)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
            clock.advance(15.5)
            found = await asyncio.wait_for(task, LONG)
            assert found is not None and found.deliveries == 2
            assert await found.ack()
            assert (await jobs.stats()).depth == 0
        assert not list(tmp_path.iterdir())

    asyncio.run(main())
