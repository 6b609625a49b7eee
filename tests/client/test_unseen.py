"""A delivery that no handler saw is no delivery: jobs that were fetched and not handed out go back at once, uncounted.

For both backends. A job of these queues that is counted for nothing is dead.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench, aopened
from tests.until import until

import tidelog
from tidelog.client.keeper import Keeper
from tidelog.server import jobs
from tidelog.server.commands import capabilities

OPTIONS: dict[str, Any] = {"retry_after": 600, "max_deliveries": 1}
BACKENDS = ["embedded", "shared"]


@contextmanager
def opened(backend: str, root: Path) -> Iterator[Any]:
    """A store. The clock goes on."""
    with tidelog.open(root, fsync="no") as db:
        if backend == "embedded":
            yield db
        else:
            with tidelog.serve(db, port=0), tidelog.connect(root) as client:
                yield client


def rest(queue: Any, count: int) -> list[int]:
    """The next jobs, done. Fails if one is missing, or was delivered before."""
    found: list[int] = []
    while len(found) < count:
        job = queue.get("sweeper", block=60)
        assert job is not None, f"{count - len(found)} jobs do not come back: {queue.stats()}"
        assert job.deliveries == 1
        assert job.ack()
        found.append(job.value)
    assert (queue.stats().depth, queue.dead.count()) == (0, 0)
    return sorted(found)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_consumers_that_are_closed_while_jobs_come(
    backend: str, batch: int, tmp_path: Path
) -> None:
    chance, seen, stop = random.Random(7), [], threading.Event()
    with opened(backend, tmp_path / "s") as db:
        mails = db.queue("mails", **OPTIONS)

        def put() -> None:
            for number in range(10_000):
                if stop.is_set():
                    return
                mails.put(number)
                time.sleep(0.001)

        def work(consumer: Any) -> None:
            for job in consumer:
                with job:
                    seen.append(job.value)

        putter = threading.Thread(target=put)
        putter.start()
        for _ in range(15):
            consumers = [mails.consume(batch=batch) for _ in range(4)]
            threads = [threading.Thread(target=work, args=(each,)) for each in consumers]
            for thread in threads:
                thread.start()
            # nothing tells when a job is between the server and its worker
            stop.wait(chance.random() / 30)
            for consumer in consumers:
                consumer.close()
            for thread in threads:
                thread.join()
        stop.set()
        putter.join()
        found = rest(mails, mails.stats().depth)
        assert len(found) + len(seen) == len({*found, *seen})


@pytest.mark.parametrize("backend", BACKENDS)
def test_waits_that_are_cancelled_while_jobs_come(backend: str, tmp_path: Path) -> None:
    chance = random.Random(9)

    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", **OPTIONS)

            async def put() -> None:
                for number in range(60):
                    await asyncio.sleep(chance.random() / 100)
                    await mails.put(number)

            putter = asyncio.create_task(put())
            consumer, started = mails.consume("anna"), 0
            found: list[int] = []
            while len(found) < 60:
                started += 1
                try:
                    job = await asyncio.wait_for(anext(consumer), chance.random() / 100)
                except TimeoutError:
                    continue
                assert job.deliveries == 1
                async with job:
                    found.append(job.value)
            await putter
            assert sorted(found) == list(range(60))
            assert started > 60, "no wait was cancelled"
            stats = await mails.stats()
            assert (stats.depth, await mails.dead.count()) == (0, 0)

    asyncio.run(main())


def leave(queue: Any) -> None:
    for job in queue.consume(batch=5):
        with job:
            return


def leave_by_an_error(queue: Any) -> None:
    try:
        for job in queue.consume(batch=5, reraise=True):
            job.ack()
            raise LookupError
    except LookupError:
        pass


@pytest.mark.parametrize("first", [leave, leave_by_an_error])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_consumer_that_is_dropped_in_the_middle_of_a_batch(
    backend: str, first: Callable[[Any], None], tmp_path: Path
) -> None:
    with opened(backend, tmp_path / "s") as db:
        mails = db.queue("mails", **OPTIONS)
        mails.put_many(range(5))
        first(mails)
        gc.collect()
        assert rest(mails, 4) == [1, 2, 3, 4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_consumer_of_asyncio_that_is_dropped(backend: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", **OPTIONS)
            await mails.put_many(range(5))

            async def first() -> None:
                async for job in mails.consume(batch=5):
                    async with job:
                        return

            await first()
            gc.collect()
            for value in (1, 2, 3, 4):
                job = await mails.get("other", block=60)
                assert job is not None and (job.value, job.deliveries) == (value, 1)
                await job.ack()

    asyncio.run(main())


def test_close_does_not_wait_for_a_thread_that_dropped_its_consumer(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0):
        client = tidelog.connect(tmp_path / "s")
        mails = client.queue("mails", **OPTIONS)
        mails.put_many(range(5))
        dropped, end = threading.Event(), threading.Event()

        def work() -> None:
            leave(mails)
            gc.collect()
            dropped.set()
            end.wait(120)

        thread = threading.Thread(target=work)
        thread.start()
        assert dropped.wait(60)
        assert client.close(drain=60) == 0
        end.set()
        thread.join()
        assert db.queue("mails").stats().in_flight == {}


def test_an_interrupt_between_the_server_and_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Keeper.hold
    struck: list[bool] = []

    def struck_once(self: Keeper, *args: Any) -> None:
        if not struck:
            struck.append(True)
            raise KeyboardInterrupt
        hold(self, *args)

    monkeypatch.setattr(Keeper, "hold", struck_once)
    with opened("shared", tmp_path / "s") as db:
        mails = db.queue("mails", **OPTIONS)
        mails.put(0)
        with pytest.raises(KeyboardInterrupt):
            mails.get("anna", block=60)
        assert rest(mails, 1) == [0]


def test_a_job_that_a_handler_began_stays_when_its_connection_breaks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "GRACE_S", 0.0)
    monkeypatch.setattr(Keeper, "beat", lambda keeper, at_once=False: None)
    client = bench.connect()
    mails = client.queue("mails", **OPTIONS)
    mails.put("first")
    job = mails.get("anna", block=0)
    assert job is not None
    assert bench.serving.server is not None
    sessions = bench.serving.server.sessions
    for lane in client._link._free:
        lane.drop()
    until(lambda: not sessions)
    assert bench.connect().queue("mails", **OPTIONS).get("bert", block=0) is None
    assert job.ack()


def test_a_server_that_cannot_confirm(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of version 0.1: the client does as it did then."""
    monkeypatch.setattr(capabilities, "CAPABILITIES", ())
    mails = bench.connect().queue("mails", **OPTIONS)
    consumer, got = mails.consume("anna"), []

    def work() -> None:
        for job in consumer:
            got.append(job.value)
            job.ack()

    thread = threading.Thread(target=work)
    thread.start()
    mails.put("first")
    until(lambda: got == ["first"])
    consumer.close()
    thread.join(60)
    assert not thread.is_alive()
    (lane, *_) = mails._link._free
    assert not lane.can(b"confirm")
