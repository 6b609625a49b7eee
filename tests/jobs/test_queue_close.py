"""Closing: consumers wake and take nothing more, and jobs in the hands of others are waited for."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import parked, until

import tidelog

LONG = 60  # seconds of real time after which a test gives up


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "s", fsync="no") as found:
        yield found


async def turn_until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0)


# --- a consumer


@pytest.mark.parametrize("batch", [1, 4])
def test_closing_a_consumer_wakes_the_thread_that_waits_with_it(
    batch: int, db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    queue = db.queue("jobs")
    consumer = queue.consume("anna", batch)
    waiting = pool.submit(list[Any], consumer)
    parked(db)
    consumer.close()
    assert waiting.result(LONG) == []
    queue.put(1)
    assert queue.stats().waiting == 1, "it took a job that was put after it was closed"
    assert list(consumer) == []


def test_closing_a_consumer_wakes_every_thread_that_shares_it(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    consumer = db.queue("jobs").consume("anna")
    waiting = [pool.submit(next, consumer, "ended") for _ in range(3)]
    parked(db, 3)
    consumer.close()
    assert [future.result(LONG) for future in waiting] == ["ended"] * 3


def test_a_job_is_handed_out_or_goes_back_when_a_consumer_is_closed(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    """Puts and closes race: each job is with the worker, or waits as if it had never been delivered."""
    queue: Any = db.queue("jobs")
    for number in range(300):
        consumer = queue.consume("anna", 1 + number % 3)
        waiting = pool.submit(next, consumer, None)
        if number % 2:
            parked(db)
        putting = pool.submit(queue.put, number)
        consumer.close()
        putting.result(LONG)
        job = waiting.result(LONG)
        if job is None:
            job = queue.get("ben", block=0)
        assert (job.value, job.deliveries) == (number, 1)
        job.ack()


def test_closing_a_consumer_wakes_the_task_that_waits_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
            consumer = queue.consume("anna")
            task = asyncio.ensure_future(anext(consumer, "ended"))
            await turn_until(inside.waiting(queue).waiters)
            await consumer.aclose()
            await queue.put(1)
            assert await task == "ended"
            assert (await queue.stats()).waiting == 1

    asyncio.run(asyncio.wait_for(main(), LONG))


# --- a queue and its store: threads


class Holding:
    """A thread that has a job in hand until it is told to end it."""

    def __init__(self, pool: ThreadPoolExecutor, take: Callable[[], Any]) -> None:
        self._taken, self._end = threading.Event(), threading.Event()
        self.result: Future[bool] = pool.submit(self._work, take)
        assert self._taken.wait(LONG)

    def _work(self, take: Callable[[], Any]) -> bool:
        job = take()
        self._taken.set()
        assert self._end.wait(LONG)
        return bool(job.ack())

    def end(self) -> None:
        self._end.set()


def is_closing(queue: Any) -> Callable[[], object]:
    return lambda: queue._engine.leases.closing


@pytest.mark.parametrize("of", ["queue", "store"])
def test_closing_waits_for_a_job_in_the_hands_of_another_thread(
    of: str, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    holding = Holding(pool, lambda: queue.get("anna", block=0))
    closing = pool.submit((queue if of == "queue" else queue.store).close)
    until(is_closing(queue))
    assert not closing.done()
    queue.put(2)  # what the job's end needs goes on
    holding.end()
    assert holding.result.result(LONG) is True
    assert closing.result(LONG) == 0
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert [job.value for job in queue.peek()] == [2] and len(queue) == 1


def test_closing_says_how_many_jobs_were_left(
    tmp_path: Path, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "tidelog.queue")
    db = tidelog.open(tmp_path / "s")
    jobs, others = db.queue("jobs"), db.queue("others")
    jobs.put_many([1, 2])
    others.put(3)
    held = [
        Holding(pool, lambda queue=queue: queue.get("anna", block=0))  # type: ignore[misc]
        for queue in (jobs, jobs, others)
    ]
    began = time.monotonic()
    assert db.close(drain=timedelta(milliseconds=200)) == 3
    assert 0.2 <= time.monotonic() - began < 60
    assert "held 3 jobs (jobs: 2, others: 1)" in caplog.text
    for holding in held:
        holding.end()
        with pytest.raises(tidelog.StoreClosed):
            holding.result.result(LONG)
    assert db.close() == 0
    with tidelog.open(tmp_path / "s") as db:
        assert db.queue("jobs").get("anna", block=0).deliveries == 2  # type: ignore[union-attr]


def test_closing_waits_for_none_of_the_callers_own_jobs(tmp_path: Path) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put_many(range(5))
    one = queue.get("anna", block=0)
    batch = queue.consume("anna", 3, block=0)
    two = next(batch)
    began = time.monotonic()
    assert queue.close() == 0
    assert time.monotonic() - began < 60
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert queue.stats().in_flight == {"anna": 2}, (one, two)
        found = sorted(
            (job.value, job.deliveries) for job in queue.consume("anna", block=0) if job.ack()
        )
        assert found == [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_job_is_in_the_hands_of_who_entered_its_block(
    batch: int, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """One thread takes jobs for a pool of others, and closes the queue while they work."""
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put_many(range(3))
    entered, end = threading.Semaphore(0), threading.Event()

    def work(job: Any) -> None:
        with job:
            entered.release()
            assert end.wait(LONG)

    consumer = queue.consume("anna", batch, block=0)
    working = [pool.submit(work, job) for job in consumer]
    for _ in working:
        assert entered.acquire(timeout=LONG)
    threading.Timer(0.1, end.set).start()
    assert queue.close() == 0
    for future in working:
        future.result(LONG)
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert len(queue) == 0


def test_closing_waits_for_no_job_whose_thread_has_ended(tmp_path: Path) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    kept: list[Any] = []
    thread = threading.Thread(target=lambda: kept.append(queue.get("anna", block=0)))
    thread.start()
    thread.join(LONG)
    began = time.monotonic()
    assert queue.close() == 0 and kept
    assert time.monotonic() - began < 60


def test_no_job_is_handed_out_while_a_store_is_being_closed(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    holding = Holding(pool, lambda: queue.get("anna", block=0))
    waiting = pool.submit(queue.get, "ben")
    parked(queue.store)
    closing = pool.submit(queue.close)
    with pytest.raises(tidelog.StoreClosed):
        waiting.result(LONG)
    queue.put(2)
    with pytest.raises(tidelog.StoreClosed):
        queue.get("ben", block=0)
    with pytest.raises(tidelog.StoreClosed):
        queue.store.queue("jobs", "a new group").get("ben", block=0)
    assert queue.stats().waiting == 1 and not closing.done()
    holding.end()
    assert closing.result(LONG) == 0


def test_two_may_close_at_once(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    holding = Holding(pool, lambda: queue.get("anna", block=0))
    closing = pool.submit(queue.close)
    until(is_closing(queue))
    assert queue.close(drain=0) == 1
    assert closing.result(LONG) in (0, 1)
    holding.end()
    with pytest.raises(tidelog.StoreClosed):
        holding.result.result(LONG)


@pytest.mark.parametrize("drain", [-1, "soon", float("nan"), True, timedelta(seconds=-1)])
def test_a_bad_drain_closes_nothing(drain: Any, db: tidelog.Store) -> None:
    with pytest.raises(tidelog.DataError, match="drain must be"):
        db.close(drain)
    assert db.ping()


PROGRAM = """
import contextlib, sys, threading, tidelog

def work(number):
    # An error that a thread prints can make CPython 3.13 exit with 1 in place of the signal.
    with contextlib.suppress(tidelog.StoreClosed):
        for job in queue.consume(f"worker-{number}"):
            with job:
                print("in hand", flush=True)
                finish.wait()

finish = threading.Event()
threading.Timer(float(sys.argv[2]), finish.set).start()
with tidelog.queue(sys.argv[1], "jobs") as queue:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_ctrl_c_ends_a_program_with_worker_threads(tmp_path: Path) -> None:
    """The job in hand is finished, and the workers that wait end."""
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        queue.put(1)
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "s"), "1.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "in hand\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=LONG)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert len(queue) == 0, errors


def test_an_interrupt_ends_the_wait_but_not_the_closing(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    queue: Any = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    holding = Holding(pool, lambda: queue.get("anna", block=0))

    def interrupt() -> None:
        until(lambda: queue._engine.known.room)
        signal.raise_signal(signal.SIGINT)

    struck = pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    struck.result(LONG)
    assert queue.store.closed
    holding.end()
    with pytest.raises(tidelog.StoreClosed):
        holding.result.result(LONG)
    tidelog.queue(tmp_path / "s", "jobs").close()  # the directory is free


# --- asyncio


def test_closing_waits_for_a_job_in_the_hands_of_another_task(tmp_path: Path) -> None:
    async def main() -> None:
        queue: Any = await tidelog.aqueue(tmp_path / "s", "jobs")
        await queue.put_many([1, 2])
        own = await queue.get("anna", block=0)
        taken, end = asyncio.Event(), asyncio.Event()

        async def work() -> bool:
            job = await queue.get("ben", block=0)
            taken.set()
            await end.wait()
            return bool(await job.ack())

        working = asyncio.create_task(work())
        await taken.wait()
        waiting = asyncio.create_task(queue.get("eve"))
        await turn_until(inside.waiting(queue).waiters)
        asyncio.get_running_loop().call_later(0.1, end.set)
        assert await queue.aclose() == 0
        assert await working is True and own.state == "open"
        with pytest.raises(tidelog.StoreClosed):
            await waiting

    asyncio.run(asyncio.wait_for(main(), LONG))
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert queue.stats().in_flight == {"anna": 1}


def test_closing_says_how_many_tasks_had_jobs(tmp_path: Path) -> None:
    async def main() -> None:
        queue: Any = await tidelog.aqueue(tmp_path / "s", "jobs")
        await queue.put_many(range(6))

        taken = []

        async def work(batch: int) -> None:
            async for job in queue.consume("anna", batch):
                async with job:
                    taken.append(job.id)
                    await asyncio.Event().wait()

        tasks = [asyncio.create_task(work(batch)) for batch in (1, 3)]
        await turn_until(lambda: len(taken) == 2)
        assert await queue.aclose(drain=0.1) == 2
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(asyncio.wait_for(main(), LONG))
    gc.collect()
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        stats = queue.stats()
        assert (stats.depth, stats.in_flight) == (6, {"anna": 2})


def test_a_cancelled_close_closes(tmp_path: Path) -> None:
    async def main() -> None:
        queue: Any = await tidelog.aqueue(tmp_path / "s", "jobs")
        await queue.put(1)
        taken, end = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            job = await queue.get("ben", block=0)
            taken.set()
            await end.wait()
            assert job.state == "open"

        working = asyncio.create_task(work())
        await taken.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await queue.aclose()
        assert queue.store.closed
        end.set()
        await working

    asyncio.run(asyncio.wait_for(main(), LONG))


def test_a_thread_does_not_wait_for_tasks_of_its_own_loop(tmp_path: Path) -> None:
    """They could not go on meanwhile."""

    async def main() -> None:
        db = await tidelog.aopen(tmp_path / "s")
        queue: Any = db.queue("jobs")
        await queue.put(1)

        taken = asyncio.Event()

        async def work() -> None:
            job = await queue.get("ben", block=0)
            taken.set()
            await asyncio.Event().wait()
            assert job.state == "open"

        working = asyncio.create_task(work())
        await taken.wait()
        began = time.monotonic()
        assert tidelog.Store(inside.core(db), decode=False).close() == 0
        assert time.monotonic() - began < 60
        working.cancel()

    asyncio.run(asyncio.wait_for(main(), LONG))
