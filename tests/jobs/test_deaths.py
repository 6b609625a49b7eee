"""Each job that becomes a dead job is one line at ERROR, when it happens: queue, ID, reason, attempts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.until import until

import tidelog
from tidelog import testing


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def jobs(tmp_path: Path, clock: testing.Clock) -> Iterator[tidelog.Queue]:
    with tidelog.open(tmp_path / "store", clock=clock) as db:
        yield db.queue("jobs", max_deliveries=2, retry_after=1)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if " is dead: " in r.getMessage()]


def test_a_job_that_fails_at_its_last_delivery(
    jobs: tidelog.Queue, clock: testing.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    id = jobs.put("x")
    for _ in range(2):
        job = jobs.get("anna", block=0)
        assert job is not None
        assert told(caplog) == []
        job.nack(ValueError("no\naddress"))
        clock.advance(60)
    reason = "given up after 2 deliveries; the last one failed: ValueError: no address"
    assert told(caplog) == [f"queue jobs: job {id} is dead: {reason} (2 deliveries)"]
    (record,) = (r for r in caplog.records if hasattr(r, "attempts"))
    assert (record.levelno, record.name) == (logging.ERROR, "tidelog.queue")
    fields = {name: getattr(record, name) for name in ("queue", "job", "attempts", "reason")}
    assert fields == {"queue": "jobs", "job": id, "attempts": 2, "reason": reason}


def test_one_delivery_is_singular(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tidelog.queue(tmp_path / "store", "jobs", max_deliveries=1) as jobs:
        id = jobs.put("x")
        job = jobs.get("anna", block=0)
        assert job is not None and job.nack("broken")
        (dead,) = jobs.dead
    assert dead.reason == "given up after 1 delivery; the last one failed: broken"
    assert told(caplog) == [f"queue jobs: job {id} is dead: {dead.reason} (1 delivery)"]


def test_a_worker_gives_a_job_up(jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture) -> None:
    id = jobs.put("x")
    job = jobs.get("anna", block=0)
    assert job is not None and job.fail("nobody wants it")
    assert told(caplog) == [f"queue jobs: job {id} is dead: nobody wants it (1 delivery)"]
    assert not job.fail("again") and len(told(caplog)) == 1


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize("batch", [1, 5])
def test_a_job_that_expires(
    jobs: tidelog.Queue,
    clock: testing.Clock,
    caplog: pytest.LogCaptureFixture,
    key: str | None,
    batch: int,
) -> None:
    queue = jobs if key is None else jobs.store.queue("jobs", concurrency_per_key=1)
    gone = [queue.put(n, ttl=5, key=key) for n in range(3)]
    clock.advance(6)
    stays = queue.put("stays")
    with queue.consume("anna", batch=batch, block=0) as consumer:
        assert [job.id for job in consumer if job.ack()] == [stays]
    assert told(caplog) == [f"queue jobs: job {id} is dead: expired (0 deliveries)" for id in gone]


def abandon(jobs: tidelog.Queue, clock: testing.Clock) -> str:
    """A job that two workers took and dropped: the next look makes it a dead job."""
    id = jobs.put("x")
    for worker in ("anna", "berta"):
        job = jobs.get(worker, block=0)
        assert job is not None and job.id == id
        del job
        clock.advance(2)
    return id


def test_a_job_that_no_worker_finished(
    jobs: tidelog.Queue, clock: testing.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    id = abandon(jobs, clock)
    assert jobs.get("carla", block=0) is None
    reason = "given up after 2 deliveries: never finished"
    assert told(caplog) == [f"queue jobs: job {id} is dead: {reason} (2 deliveries)"]


def test_a_thread_that_goes_on_waiting_tells_it(
    jobs: tidelog.Queue, clock: testing.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put("first", ttl=5)
    consumer = jobs.consume("carla", block=None)
    clock.advance(6)
    got: list[str] = []

    def work() -> None:
        for job in consumer:
            with job:
                got.append(job.value)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: len(told(caplog)) == 1)
    jobs.put("second", ttl=0.001)
    jobs.put("third")
    until(lambda: got[-1:] == ["third"])
    consumer.close()
    thread.join()
    assert len(told(caplog)) == 1 + ("second" not in got)


def test_a_task_that_goes_on_waiting_tells_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = testing.Clock()

    async def work() -> None:
        async with tidelog.aqueue(tmp_path / "store", "jobs", clock=clock) as jobs:
            await jobs.put("first", ttl=5)
            clock.advance(6)
            waiting = asyncio.create_task(jobs.get("carla", block=None))
            while not told(caplog):
                await asyncio.sleep(0)
            await jobs.put("second")
            job = await waiting
            assert job is not None and job.value == "second" and await job.ack()

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_unit_that_fails_tells_nothing(
    jobs: tidelog.Queue,
    clock: testing.Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    id = abandon(jobs, clock)
    landing = jobs.store._core.landing
    with monkeypatch.context() as patch:

        def full(*args: object) -> None:
            raise tidelog.OutOfSpace("no room")

        patch.setattr(type(landing), "land", full)
        with pytest.raises(tidelog.OutOfSpace):
            jobs.get("carla", block=0)
    assert told(caplog) == []
    assert jobs.get("carla", block=0) is None
    assert len(told(caplog)) == 1 and id in told(caplog)[0]
