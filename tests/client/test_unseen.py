"""A delivery that no handler saw is no delivery: jobs that were fetched and not handed out go back at once, uncounted.

For both backends. A job of these queues that is counted for nothing is dead.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import KINDS, Bench, aopened, opened
from tests.until import parked, until

import tidelog
from tidelog.client import consumer as client_consumer
from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.client.pooled import Pooled
from tidelog.client.remote import Remote
from tidelog.server import jobs
from tidelog.server.commands import capabilities

OPTIONS: dict[str, Any] = {"retry_after": 600, "max_deliveries": 1}
BACKENDS = ["embedded", "shared"]
SHARED = ["shared", "shared asyncio"]


def rest(queue: Any) -> list[int]:
    """All jobs that are left, done. None was delivered before, and none is dead."""
    found: list[int] = []

    def is_empty() -> bool:
        while (job := queue.get("sweeper", block=0)) is not None:
            assert job.deliveries == 1
            assert job.ack()
            found.append(job.value)
        # a beat writes what a batch has finished
        return bool(queue.stats().depth == 0)

    until(is_empty, "jobs do not come back")
    assert queue.dead.count() == 0
    return sorted(found)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_consumers_that_are_closed_while_jobs_come(kind: str, batch: int, tmp_path: Path) -> None:
    chance, seen, stop = random.Random(7), [], threading.Event()
    with opened(kind, tmp_path / "s") as db:
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
        found = rest(mails)
        assert len(found) + len(seen) == len({*found, *seen})


def worked_off(root: Path, seen: list[int], count: int) -> None:
    """Each of these jobs was seen once, or waits and was not delivered before."""
    with tidelog.open(root, fsync="no") as db:
        mails = db.queue("mails", **OPTIONS)
        left = rest(mails)
        assert sorted([*left, *seen]) == list(range(count))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_that_is_closed_while_jobs_come(backend: str, tmp_path: Path) -> None:
    chance, seen = random.Random(11), list[int]()

    def work(consumer: Any) -> None:
        with suppress(tidelog.StoreClosed):
            for job in consumer:
                with job:
                    seen.append(job.value)

    for round in range(5):
        with opened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", **OPTIONS)
            mails.put_many(range(60 * round, 60 * (round + 1)))
            workers = [threading.Thread(target=work, args=(mails.consume(),)) for _ in range(4)]
            for worker in workers:
                worker.start()
            time.sleep(chance.random() / 30)  # nothing tells when a job is under way
        for worker in workers:
            worker.join()
    worked_off(tmp_path / "s", seen, 300)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_for_asyncio_that_is_closed_while_jobs_come(backend: str, tmp_path: Path) -> None:
    chance, seen = random.Random(12), list[int]()

    async def work(consumer: Any) -> None:
        with suppress(tidelog.StoreClosed):
            async for job in consumer:
                async with job:
                    seen.append(job.value)

    async def main(round: int) -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", **OPTIONS)
            await mails.put_many(range(60 * round, 60 * (round + 1)))
            workers = [asyncio.create_task(work(mails.consume())) for _ in range(4)]
            await asyncio.sleep(chance.random() / 30)
        await asyncio.gather(*workers)

    for round in range(5):
        asyncio.run(main(round))
    worked_off(tmp_path / "s", seen, 300)


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


@pytest.mark.parametrize("when", ["before its reply", "while it is renewed"])
def test_a_job_that_was_given_back_comes_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """To another thread of its worker, as delivery 1 once more. That one holds it, whatever the first one hears."""
    with bench.connect() as db:
        mails = db.queue("mails", **OPTIONS)
        mails.put("a")
        first, others = mails.get("anna"), mails.consume("anna")
        remote: Any = mails._backend
        keeper, worked = remote.keeper, (remote, b"anna")
        assert first is not None
        release, call = Remote.release, Link.call
        again: list[tidelog.SharedJob[Any]] = []

        def released(remote: Remote, *args: Any) -> list[bool]:
            found = release(remote, *args)
            again.append(next(others))
            return found

        def calls(link: Link, words: Any, *args: Any, **given: Any) -> Any:
            if again or not isinstance(words, list) or words[1] != b"RENEW":
                return call(link, words, *args, **given)
            assert first.release()
            found = call(link, words, *args, **given)
            again.append(next(others))
            return found

        if when == "before its reply":
            monkeypatch.setattr(Remote, "release", released)
            assert first.release()
        else:
            monkeypatch.setattr(Link, "call", calls)
            keeper.renew(worked)
        (job,) = again
        assert job.deliveries == 1
        assert keeper.holds(worked, job._lease.in_hand)
        assert job.ack()


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
@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_that_is_dropped_in_the_middle_of_a_batch(
    kind: str, first: Callable[[Any], None], tmp_path: Path
) -> None:
    with opened(kind, tmp_path / "s") as db:
        mails = db.queue("mails", **OPTIONS)
        mails.put_many(range(5))
        first(mails)
        gc.collect()
        assert rest(mails) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", SHARED)
def test_close_does_not_wait_for_a_thread_that_dropped_its_consumer(
    kind: str, bench: Bench
) -> None:
    client: Any = bench.connect() if kind == "shared" else bench.awaited()
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
    assert bench.db.queue("mails").stats().in_flight == {}


@pytest.mark.parametrize("by", ["a word", "a broken connection"])
def test_a_consumer_that_is_closed_ends_no_other_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The word that ends its wait comes when the wait is over, and another call uses its connection. For a server that
    does not know the word, the connection ends.
    """
    if by != "a word":
        monkeypatch.setattr(capabilities, "CAPABILITIES", ())
    store = bench.connect()
    mails, other, bills = (store.queue(name, **OPTIONS) for name in ("mails", "other", "bills"))
    waits, goes = threading.Event(), threading.Event()
    of, name = (client_consumer, "Unblock") if by == "a word" else (Pooled, "hang_up")
    end = getattr(of, name)

    def late(it: Any) -> Any:
        waits.set()
        assert goes.wait(60)
        return end(it)

    monkeypatch.setattr(of, name, late)
    consumer = mails.consume("anna", block=0.2)
    worker = threading.Thread(target=lambda: list(consumer))
    worker.start()
    parked(bench.db)
    closer = threading.Thread(target=consumer.close)
    closer.start()
    assert waits.wait(60)
    bench.clock.advance(1)
    if by == "a word":  # otherwise the worker keeps its connection until it is broken
        worker.join(60)
    ids = [bills.put(number) for number in range(20)]
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(other.get("bert", block=60)))
    waiter.start()
    parked(bench.db)
    goes.set()
    closer.join(60)
    worker.join(60)
    ids += [bills.put(number) for number in range(20)]
    other.put("for bert")
    waiter.join(60)
    assert found[0].value == "for bert" and found[0].deliveries == 1 and found[0].ack()
    assert len(set(ids)) == 40 == len(bills)


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
        assert rest(mails) == [0]


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
    for pooled in client._link._free:
        pooled.drop()
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
    (pooled, *_) = mails._remote.link._free
    assert not pooled.can(b"confirm")
