"""The durable queue for threads: what each method, option and error does, one behaviour at a time.

The store of most tests goes by a clock that is moved by hand, and is opened again after each: what the log tells
must be what memory held.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.jobs.names import names_of
from tests.until import unlocked, until

import tidelog
from tidelog import testing
from tidelog.aof import frame
from tidelog.aof.errors import NoSpace
from tidelog.aof.log import Log
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.work.known import Delivery

LONG = 60  # seconds of real time after which a test gives up
DAY = 86_400


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock, pool: ThreadPoolExecutor) -> Iterator[tidelog.Store]:
    path = tmp_path / "store"
    with tidelog.open(path, fsync="no", clock=clock) as store:
        yield store
        gc.collect()
        clock.advance(0)  # what jobs that were dropped left behind is written
        live = store.digest()
    with tidelog.open(path, clock=clock) as again:
        assert again.digest() == live


@pytest.fixture
def jobs(db: tidelog.Store) -> tidelog.Queue:
    return db.queue("jobs")


def take(queue: tidelog.Queue, worker: str = "anna") -> tidelog.Job:
    """The next job, which is there."""
    job = queue.get(worker, block=0)
    assert job is not None
    return job


def drain(queue: tidelog.Queue, worker: str = "anna") -> list[Any]:
    """The values of all jobs that are due, done."""
    values = []
    for job in queue.consume(worker, block=0):
        with job:
            values.append(job.value)
    return values


def pending(db: tidelog.Store, name: str = "jobs", group: str = "workers") -> int:
    found: int = db.xpending(name, group)["pending"]
    return found


def start(pool: ThreadPoolExecutor, db: tidelog.Store, call: Any, *args: Any) -> Future[Any]:
    """Begin a call that waits for a job, and wait until it does."""
    before = db.info()["blocked_clients"]
    future = pool.submit(call, *args)
    until(lambda: db.info()["blocked_clients"] > before, "it does not park")
    return future


def start_putting(pool: ThreadPoolExecutor, queue: tidelog.Queue, call: Any, **how: Any) -> Any:
    """Begin a put that waits for room, and wait until it does."""
    queue._engine.known.room.clear()
    future = pool.submit(call, **how)
    until(lambda: queue._engine.known.room, "it does not wait for room")
    return future


# --- putting


def test_a_job_is_an_entry_of_a_stream(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    id = jobs.put({"to": "ann"}, headers={"trace": "7"})
    assert db.xrange("jobs") == [(id.encode(), {b"value": b'{"to":"ann"}', b"header.trace": b"7"})]


def test_nothing_is_written_before_the_first_job(db: tidelog.Store) -> None:
    queue = db.queue("jobs")
    assert queue.stats().depth == 0 == len(queue)
    assert queue.peek() == [] and queue.failures() == [] and queue.dead.list() == []
    assert db.keys() == []


def test_the_id_tells_when_it_was_put(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    id = jobs.put(1)
    assert id == f"{int(clock.now().timestamp() * 1000)}-0"
    assert take(jobs).enqueued_at == clock.now()


def test_jobs_come_in_the_order_in_which_they_were_put(jobs: tidelog.Queue) -> None:
    ids = [jobs.put(n) for n in range(5)]
    assert drain(jobs) == [0, 1, 2, 3, 4]
    assert sorted(ids, key=lambda id: tuple(map(int, id.split("-")))) == ids


def test_headers_come_with_the_job(jobs: tidelog.Queue) -> None:
    jobs.put(1, headers={"trace": "ä7", "": "empty name", "x": ""})
    jobs.put(2)
    assert take(jobs).headers == {"trace": "ä7", "": "empty name", "x": ""}
    assert take(jobs, "ben").headers == {}


def test_a_value_that_cannot_be_encoded_is_refused(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.EncodeError, match="'jobs'.*json.*type set") as caught:
        jobs.put({1, 2})
    assert isinstance(caught.value, tidelog.DataError)
    assert db.keys() == []


def test_of_puts_with_one_dedup_id_the_first_counts(jobs: tidelog.Queue) -> None:
    first = jobs.put("a", dedup_id="order-7")
    assert jobs.put("b", dedup_id="order-7") == first
    assert jobs.put("c", dedup_id="order-8") != first
    assert drain(jobs) == ["a", "c"]


def test_a_dedup_id_is_known_also_when_its_job_is_done(jobs: tidelog.Queue) -> None:
    first = jobs.put("a", dedup_id="order-7")
    assert drain(jobs) == ["a"]
    assert jobs.put("a", dedup_id="order-7") == first
    assert drain(jobs) == []


def test_a_dedup_id_is_remembered_for_a_day(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    first = jobs.put("a", dedup_id="order-7")
    clock.advance(DAY - 1)
    assert jobs.put("b", dedup_id="order-7") == first
    clock.advance(2)
    assert jobs.put("c", dedup_id="order-7") != first
    assert drain(jobs) == ["a", "c"]


def test_a_dedup_id_is_one_of_the_last_ten_thousand(jobs: tidelog.Queue) -> None:
    first = jobs.put(0, dedup_id="0")
    for number in range(1, 10_000):
        jobs.put(number, dedup_id=str(number))
    assert jobs.put(0, dedup_id="0") == first
    jobs.put(10_000, dedup_id="10000")
    assert jobs.put(0, dedup_id="0") != first
    assert len(jobs) == 10_002


def test_a_dedup_id_is_known_after_reopening(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        first = queue.put("a", dedup_id="order-7")
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert queue.put("b", dedup_id="order-7") == first
        assert len(queue) == 1


def test_dedup_ids_are_those_of_one_queue(db: tidelog.Store) -> None:
    a, b = db.queue("a"), db.queue("b")
    a.put(1, dedup_id="x")
    b.put(1, dedup_id="x")
    assert len(a) == len(b) == 1


def test_a_dedup_put_into_a_stream_that_others_made(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    db.xadd("jobs", {"value": "1"})
    first = jobs.put(2, dedup_id="x")
    assert jobs.put(3, dedup_id="x") == first
    assert drain(jobs) == [1, 2]


def test_put_many_tells_how_many(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    assert jobs.put_many(range(2_500)) == 2_500
    assert jobs.put_many([]) == 0
    assert db.xlen("jobs") == 2_500
    assert drain(jobs) == list(range(2_500))


def test_put_many_syncs_once_for_a_thousand() -> None:
    disk, syncs = SimulatedDisk(), []
    with tidelog.open("/store", fsync="always", disk=disk) as db:
        queue = db.queue("jobs")
        queue.put(0)

        def before(operation: str, path: Path) -> None:
            if "sync" in operation:
                syncs.append(operation)

        disk.before = before
        assert queue.put_many(range(5_000)) == 5_000
        assert len(syncs) <= 6


class Alive:
    """A value that is counted while it lives."""

    now = most = 0

    def __init__(self) -> None:
        Alive.now += 1
        Alive.most = max(Alive.most, Alive.now)

    def __del__(self) -> None:
        Alive.now -= 1


def test_put_many_takes_a_generator_of_any_length_in_constant_memory(db: tidelog.Store) -> None:
    codec: Any = (lambda value: b"x", lambda raw: None)
    queue = db.queue("jobs", codec=codec)
    Alive.now = Alive.most = 0
    assert queue.put_many(Alive() for _ in range(20_000)) == 20_000
    assert Alive.most <= 2_001 and Alive.now == 0


def test_put_many_of_an_endless_generator_fills_a_bounded_queue(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=2_345)
    numbers = count()
    with pytest.raises(tidelog.QueueFull, match="2345"):
        queue.put_many(numbers, timeout=0)
    assert next(numbers) < 5_000
    assert drain(queue) == list(range(2_345))


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest unit is of 8 MiB here, so that tests of what outgrows one are quick."""
    monkeypatch.setattr(frame, "BODY_BYTES_MAX", 8 << 20)


def test_put_many_of_large_values_goes_in_several_units(
    db: tidelog.Store, small_units: None
) -> None:
    queue = db.queue("jobs", codec="bytes")
    values = [bytes([n]) * (1 << 20) for n in range(12)]
    assert queue.put_many(values) == 12
    assert drain(queue) == values


@pytest.mark.parametrize("bad", [0, 1, 999, 1_000, 1_500])
def test_put_many_stores_what_stood_before_a_bad_value(bad: int, jobs: tidelog.Queue) -> None:
    values: list[Any] = list(range(2_000))
    values[bad] = object()
    with pytest.raises(tidelog.EncodeError) as caught:
        jobs.put_many(values)
    assert caught.value.stored == bad
    assert drain(jobs) == list(range(bad))


def test_put_many_stores_what_an_iterable_gave_before_it_raised(jobs: tidelog.Queue) -> None:
    def values() -> Iterator[int]:
        yield from range(1_500)
        raise LookupError("the source is broken")

    with pytest.raises(LookupError, match="the source is broken"):
        jobs.put_many(values())
    assert drain(jobs) == list(range(1_500))


def test_put_many_tells_of_a_broken_iterable_also_when_the_codec_stumbles(
    db: tidelog.Store,
) -> None:
    stumbles = [True]

    def encode(value: Any) -> bytes:
        if value == 5 and stumbles:
            stumbles.clear()
            raise ValueError("only once")
        return b"%d" % value

    def values() -> Iterator[int]:
        yield from range(10)
        raise LookupError("the source is broken")

    queue = db.queue("jobs", codec=(encode, int))
    with pytest.raises(LookupError, match="the source is broken"):
        queue.put_many(values())
    assert drain(queue) == list(range(10))


@pytest.mark.parametrize("values", ["text", b"bytes", {"a": 1}, None, 5])
def test_put_many_wants_an_iterable_of_values(values: Any, jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError, match="iterable"):
        jobs.put_many(values)


def test_what_put_returned_is_there_after_reopening(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        id = queue.put("a")
        queue.put_many("bc"[n] for n in range(2))
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert take(queue).id == id
        assert [job.value for job in queue.peek()] == ["b", "c"]


# --- bounded queues


def test_a_full_queue_refuses_at_once_if_told_so(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=2)
    queue.put(1)
    queue.put(2)
    with pytest.raises(
        tidelog.QueueFull, match=r"'jobs' is full: it has 2 unfinished jobs.*max_depth"
    ):
        queue.put(3, timeout=0)
    assert len(queue) == 2


def test_jobs_in_flight_and_paused_ones_take_room(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=2)
    queue.put_many([1, 2])
    take(queue).nack("not now", delay=5)
    job = take(queue)
    with pytest.raises(tidelog.QueueFull):
        queue.put(3, timeout=0)
    assert job.ack()
    queue.put(3, timeout=0)


def test_dead_and_kept_jobs_take_none(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=1, keep=10)
    for number in range(3):
        queue.put(number, timeout=0)
        job = take(queue)
        assert job.fail("no") if number else job.ack()
    stats = queue.stats()
    assert (stats.depth, stats.dead, stats.kept) == (0, 2, 3)


def test_a_full_queue_does_not_refuse_a_duplicate(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=1)
    first = queue.put(1, dedup_id="x")
    assert queue.put(1, dedup_id="x", timeout=0) == first
    with pytest.raises(tidelog.QueueFull):
        queue.put(2, dedup_id="y", timeout=0)


def test_a_put_that_was_refused_leaves_nothing_behind(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=1)
    queue.put(1)
    for _ in range(100):
        with pytest.raises(tidelog.QueueFull):
            queue.put(2, timeout=0)
    assert not queue._engine.known.room


def test_put_waits_until_a_job_is_done(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    queue = db.queue("jobs", max_depth=1)
    queue.put(1)
    putting = start_putting(pool, queue, lambda: queue.put(2))
    assert not putting.done()
    assert drain(queue) == [1]
    putting.result(LONG)
    assert drain(queue) == [2]


def test_put_waits_until_a_job_is_given_up(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    queue = db.queue("jobs", max_depth=1, max_deliveries=1, retry_after=30)
    queue.put(1)
    take(queue)
    gc.collect()
    putting = start_putting(pool, queue, lambda: queue.put(2))
    before = set(queue._engine.known.room)
    clock.advance(31)
    until(lambda: set(queue._engine.known.room) - before, "it does not wait on")
    assert queue.get("ben", block=0) is None
    putting.result(LONG)
    assert queue.dead.count() == 1 and drain(queue) == [2]


def test_put_waits_so_long(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    queue = db.queue("jobs", max_depth=1)
    queue.put(1)
    putting = start_putting(pool, queue, lambda: queue.put(2, timeout=5))
    clock.advance(4)
    until(lambda: queue._engine.known.room, "it does not wait on")
    assert not putting.done()
    clock.advance(1)
    with pytest.raises(tidelog.QueueFull):
        putting.result(LONG)


def test_put_many_puts_what_there_is_room_for_and_waits_with_the_rest(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    queue = db.queue("jobs", max_depth=3)
    putting = start_putting(pool, queue, lambda: queue.put_many(range(8)))
    assert len(queue) == 3
    seen = []
    for job in queue.consume("anna"):
        with job:
            seen.append(job.value)
        if len(seen) == 8:
            break
    assert seen == list(range(8)) and putting.result(LONG) == 8


def test_put_many_leaves_what_it_put_when_its_time_is_up(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=3)
    with pytest.raises(tidelog.QueueFull):
        queue.put_many(range(8), timeout=0)
    assert drain(queue) == [0, 1, 2]


# --- consuming


def test_a_job_tells_what_it_is(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    id = jobs.put({"to": "ann"}, headers={"trace": "7"})
    put_at = clock.now()
    clock.advance(60)
    job = take(jobs, "anna")
    assert (job.value, job.id, job.headers) == ({"to": "ann"}, id, {"trace": "7"})
    assert (job.deliveries, job.worker, job.origin) == (1, "anna", None)
    assert job.enqueued_at == put_at and job.enqueued_at.utcoffset() is not None
    assert repr(job) == f"<job {id} of 'jobs', delivery 1, open>" and job.state == "open"


def test_the_queue_tells_what_it_is(db: tidelog.Store) -> None:
    queue = db.queue("jobs", "senders")
    assert (queue.name, queue.group, queue.store) == ("jobs", "senders", db)
    assert repr(queue) == "<Queue 'jobs', group 'senders'>"
    assert bool(queue) and len(queue) == 0


def test_consume_ends_at_once_without_jobs_if_told_so(jobs: tidelog.Queue) -> None:
    assert list(jobs.consume(block=0)) == []
    assert jobs.get(block=0) is None


def test_consume_ends_after_so_many_seconds(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no") as queue:
        assert list(queue.consume(block=0.01)) == []
        assert queue.get(block=0.01) is None


def test_consume_waits_for_ever_unless_told_otherwise(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    waiting = start(pool, db, jobs.get, "anna")
    clock.advance(30 * DAY)
    assert not waiting.done()
    jobs.put("at last")
    assert waiting.result(LONG).value == "at last"


def test_of_several_waiting_workers_each_gets_a_job_of_its_own(
    db: tidelog.Store, jobs: tidelog.Queue, pool: ThreadPoolExecutor
) -> None:
    waiting = [start(pool, db, jobs.get, f"w{n}") for n in range(4)]
    jobs.put_many(range(4))
    got = [future.result(LONG) for future in waiting]
    assert sorted(job.value for job in got) == [0, 1, 2, 3]


def test_a_worker_without_a_name_is_given_one(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    worker = jobs.consume().worker
    assert str(os.getpid()) in worker
    assert jobs.consume().worker == worker  # of this queue object
    assert db.queue("jobs").consume().worker != worker
    jobs.put(1)
    job = jobs.get(block=0)
    assert job is not None and job.worker == worker


def test_a_consumer_tells_its_name(jobs: tidelog.Queue) -> None:
    consumer = jobs.consume("anna")
    assert consumer.worker == "anna" and repr(consumer) == "<consumer 'anna' of 'jobs'>"


def test_a_consumer_that_ended_stays_at_its_end(jobs: tidelog.Queue) -> None:
    consumer = jobs.consume("anna", block=0)
    assert list(consumer) == []
    jobs.put(1)
    assert list(consumer) == []
    assert drain(jobs) == [1]


def test_a_batch_is_fetched_together(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put_many(range(5))
    consumer = jobs.consume("anna", batch=3, block=0)
    assert next(consumer).value == 0
    assert pending(db) == 3
    consumer.close()


def test_a_smaller_batch_is_fetched_at_once(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put_many(range(2))
    assert [job.value for job in jobs.consume("anna", batch=100, block=0)] == [0, 1]


def finish(consumer: Any, number: int) -> None:
    for _ in range(number):
        with next(consumer):
            pass


def test_the_acks_of_a_batch_go_with_the_next_fetch(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put_many(range(5))
    consumer = jobs.consume("anna", batch=2, block=0)
    finish(consumer, 2)
    assert pending(db) == 2 and db.xlen("jobs") == 5
    next(consumer).ack()
    assert pending(db) == 1 and db.xlen("jobs") == 2
    consumer.close()


def test_the_acks_of_the_last_batch_go_with_the_end_of_the_iteration(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    jobs.put_many(range(4))
    finish(consumer := jobs.consume("anna", batch=2, block=0), 4)
    assert list(consumer) == []
    assert pending(db) == 0 == db.xlen("jobs")


def test_the_acks_of_a_batch_go_with_the_next_beat(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    finish(consumer, 2)
    assert pending(db) == 3
    clock.advance(1)
    assert pending(db) == 1 == db.xlen("jobs")
    finish(consumer, 1)


def test_of_finished_jobs_two_threads_take_each_what_the_other_did_not(jobs: tidelog.Queue) -> None:
    class Meanwhile(deque[int]):
        def __len__(self) -> int:
            return super().__len__() + 1  # the other one took a job right after the look

    delivery = Delivery(jobs._engine.known, jobs._options, b"anna", True)
    delivery.finished = Meanwhile([1, 2])
    assert delivery.take_finished() == [1, 2]


def test_the_acks_of_a_batch_go_with_the_close_of_its_consumer(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    jobs.put_many(range(3))
    with jobs.consume("anna", batch=3, block=0) as consumer:
        finish(consumer, 2)
    assert pending(db) == 1 and jobs.stats().waiting == 1  # the third was given back
    assert db.xlen("jobs") == 1


def test_the_acks_of_a_batch_go_when_its_consumer_is_dropped(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    finish(jobs.consume("anna", batch=3, block=0), 2)
    gc.collect()
    clock.advance(1)
    assert pending(db) == 1 and jobs.stats().waiting == 1


def test_the_acks_of_a_batch_go_with_the_close_of_the_store(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no") as queue:
        queue.put_many(range(3))
        consumer = queue.consume("anna", batch=3, block=0)
        finish(consumer, 2)
    with tidelog.open(tmp_path / "s") as db:
        assert pending(db) == 1 == db.xlen("jobs")


@pytest.fixture
def full_disk(db: tidelog.Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether there is room for another record."""
    full, reserve = [False], Log.reserve

    def reserves(log: Log, nbytes: int) -> None:
        if full[0]:
            raise NoSpace(Path("log.aof"), nbytes)
        reserve(log, nbytes)

    def fill(now: bool) -> None:
        full[0] = now
        inside.log(db).room = -1  # so that everyone asks

    monkeypatch.setattr(Log, "reserve", reserves)
    return fill


def test_a_consumer_that_could_not_be_closed_is_closed_by_the_next_beat(
    db: tidelog.Store,
    jobs: tidelog.Queue,
    clock: testing.Clock,
    full_disk: Callable[[bool], None],
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    finish(consumer, 2)
    full_disk(True)
    with pytest.raises(tidelog.OutOfSpace):
        consumer.close()
    full_disk(False)
    clock.advance(1)
    assert db.xlen("jobs") == 1 and jobs.stats().waiting == 1
    assert take(jobs, "ben").deliveries == 1


def test_a_consumer_that_could_not_be_closed_holds_nothing_back(
    db: tidelog.Store, clock: testing.Clock, full_disk: Callable[[bool], None]
) -> None:
    """Not even while a job of its batch is still in hand."""
    queue = db.queue("jobs", retry_after=3600)
    queue.put_many(range(3))
    consumer = queue.consume("anna", batch=3, block=0)
    first = next(consumer)
    full_disk(True)
    with pytest.raises(tidelog.OutOfSpace):
        consumer.close()
    full_disk(False)
    clock.advance(1)
    assert drain(queue, "ben") == [1, 2]
    assert first.ack()


def test_a_dropped_consumer_is_seen_to_when_there_is_room_again(
    db: tidelog.Store,
    jobs: tidelog.Queue,
    clock: testing.Clock,
    full_disk: Callable[[bool], None],
) -> None:
    jobs.put_many(range(3))
    finish(jobs.consume("anna", batch=3, block=0), 2)
    gc.collect()
    full_disk(True)
    clock.advance(1)
    with pytest.raises(tidelog.OutOfSpace):
        jobs.get("ben", block=0)
    assert pending(db) == 3
    full_disk(False)
    clock.advance(1)
    assert db.xlen("jobs") == 1 and jobs.stats().waiting == 1


def test_dropped_batches_leave_nothing_behind(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    for number in range(20):
        jobs.put(number)
        finish(jobs.consume("anna", batch=2, block=0), 1)
    gc.collect()
    clock.advance(1)
    known = jobs._engine.known
    assert len(jobs) == 0
    assert not known.dropped and not known.leftovers and not known.living


def test_an_ack_of_ones_own_does_not_wait_for_the_batch(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    assert next(consumer).ack()
    assert pending(db) == 2
    consumer.close()


def test_a_job_of_a_batch_that_fails_is_nacked_at_once(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    finish(consumer, 1)
    with next(consumer):
        raise ValueError
    assert jobs.stats().paused == 1
    finish(consumer, 1)
    consumer.close()
    assert jobs.stats().depth == 1


def test_a_closed_consumer_gives_back_what_nobody_saw(jobs: tidelog.Queue) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    first = next(consumer)
    consumer.close()
    consumer.close()
    assert list(consumer) == []
    assert [(job.value, job.deliveries) for job in jobs.consume("ben", block=0)] == [(1, 1), (2, 1)]
    assert first.ack()


def test_a_dropped_consumer_gives_back_what_nobody_saw(jobs: tidelog.Queue) -> None:
    jobs.put_many(range(3))
    first = next(jobs.consume("anna", batch=3, block=0))
    gc.collect()
    # first keeps its own lease, and it alone
    assert [(job.value, job.deliveries) for job in jobs.consume("ben", block=0)] == [(1, 1), (2, 1)]
    assert first.ack()


def test_leaving_the_loop_gives_back_the_rest_of_the_batch(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(4))
    for job in jobs.consume("anna", batch=4, block=0):
        with job:
            if job.value == 1:
                break
    del job
    gc.collect()
    clock.advance(1)
    assert drain(jobs, "ben") == [2, 3]


def test_own_jobs_come_first_then_retries_then_new_ones(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        queue.put_many(["retry", "anna's", "new"])
        take(queue, "ben").nack("not now", delay=5)
        assert take(queue, "anna").value == "anna's"
    clock.advance(5)
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        found = [(job.value, job.deliveries) for job in queue.consume("anna", block=0) if job.ack()]
        assert found == [("anna's", 2), ("retry", 2), ("new", 1)]


def test_a_dropped_job_of_a_worker_without_a_name_comes_back_after_its_lease(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue = db.queue("jobs", retry_after=30)
    queue.put(1)
    queue.get(block=0)
    gc.collect()
    assert queue.get(block=0) is None
    clock.advance(30)
    job = queue.get(block=0)
    assert job is not None and job.deliveries == 2


# --- how a job ends


def test_ack_makes_the_entry_go(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put(1)
    job = take(jobs)
    assert job.ack() and job.state == "acked"
    assert db.xlen("jobs") == 0 == pending(db)


def test_a_job_is_settled_once(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    job = take(jobs)
    assert job.ack() and job.ack()  # it is done, twice told
    assert not job.nack() and not job.fail() and not job.release() and not job.extend(5)
    assert not job.done_and(jobs.new(2))
    assert jobs.stats().depth == 0 == jobs.stats().dead


@pytest.mark.parametrize("end", ["nack", "fail", "release"])
def test_a_job_that_was_given_back_is_not_acked(end: str, jobs: tidelog.Queue) -> None:
    jobs.put(1)
    job = take(jobs)
    assert getattr(job, end)()
    assert job.state == "given" and not job.ack() and job.state == "given"


def test_the_block_acks(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    with take(jobs) as job:
        assert job.value == 1
    assert job.state == "acked" and len(jobs) == 0


def test_the_block_leaves_a_job_alone_that_was_settled_in_it(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put(1)
    with take(jobs) as job:
        assert job.nack("not now")
    assert job.state == "given" and jobs.stats().paused == 1
    assert not caplog.records


def test_a_failure_is_recorded(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    id = jobs.put(1)
    assert take(jobs, "anna").nack("the server is down")
    (failure,) = jobs.failures()
    assert (failure.job_id, failure.worker, failure.deliveries) == (id, "anna", 1)
    assert (failure.error, failure.traceback) == ("the server is down", "")
    assert failure.at == clock.now()
    ((entry, fields),) = db.xrange("jobs:failures")
    assert fields == {
        b"group": b"workers", b"job": id.encode(), b"worker": b"anna", b"deliveries": b"1",
        b"error": b"the server is down", b"traceback": b"",
    }  # fmt: skip
    assert int(entry.partition(b"-")[0]) == int(clock.now().timestamp() * 1000)


def test_an_exception_is_recorded_with_its_traceback(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    try:
        raise LookupError("no such customer")
    except LookupError as error:
        assert take(jobs).nack(error)
    (failure,) = jobs.failures()
    assert failure.error == "LookupError: no such customer"
    assert "test_an_exception_is_recorded" in failure.traceback


def test_a_job_that_fails_is_paused(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    id = jobs.put(1)
    assert take(jobs).nack()
    (row,) = db.xpending_range("jobs", "workers", "-", "+", 10)
    assert (
        row["message_id"] == id.encode() and row["consumer"] == b"" and row["times_delivered"] == 1
    )
    ((_, hold),) = db.xrange("jobs:holds")
    assert hold[b"group"] == b"workers" and hold[b"job"] == id.encode()
    assert jobs.get("ben", block=0) is None


def pause_of(db: tidelog.Store, clock: testing.Clock) -> float:
    """Seconds for which the one paused job is held back."""
    ((_, hold),) = db.xrange("jobs:holds")
    return int(hold[b"until"]) / 1000 - clock.now().timestamp()


def test_pauses_double_up_to_an_hour(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", retry_after=500, max_deliveries=100)
    queue.put(1)
    for expected in (500, 1000, 2000, 3600, 3600):
        assert take(queue).nack()
        pause = pause_of(db, clock)
        assert expected * 0.75 <= pause <= expected * 1.25
        clock.advance(pause - 0.01)
        assert queue.get("anna", block=0) is None
        clock.advance(0.02)


def test_a_pause_is_longer_than_an_hour_where_retry_after_is(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue = db.queue("jobs", retry_after=7200)
    queue.put(1)
    for _ in range(2):
        assert take(queue).nack()
        pause = pause_of(db, clock)
        assert 7200 * 0.75 <= pause <= 7200 * 1.25
        clock.advance(pause + 0.01)


def test_pauses_differ(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put_many(range(20))
    for _ in range(20):
        take(jobs).nack()
    assert len({fields[b"until"] for _, fields in db.xrange("jobs:holds")}) > 10


def test_a_nack_may_name_the_pause(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    assert take(jobs).nack("later", delay=5)
    clock.advance(4.999)
    assert jobs.get("anna", block=0) is None
    clock.advance(0.001)
    assert take(jobs).deliveries == 2
    assert db.xlen("jobs:holds") == 0


def test_a_nack_without_pause_is_due_at_once(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    for deliveries in (1, 2, 3):
        job = take(jobs)
        assert job.deliveries == deliveries and job.nack(delay=0)


def test_a_pause_outlasts_reopening(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        queue.put(1)
        assert take(queue).nack("later", delay=50)
    clock.advance(40)
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        assert queue.get("anna", block=0) is None
        assert queue.stats().paused == 1
        clock.advance(10)
        assert take(queue).deliveries == 2


def test_a_retry_wakes_a_worker_that_waits(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    jobs.put(1)
    job = take(jobs)
    waiting = start(pool, db, jobs.get, "ben")
    assert job.nack("later", delay=5)
    clock.advance(4)
    assert not waiting.done()
    clock.advance(1)
    assert waiting.result(LONG).deliveries == 2


@pytest.mark.parametrize("how", ["release", "nack without pause"])
def test_a_job_that_is_given_back_wakes_a_worker_that_waits(
    how: str, db: tidelog.Store, jobs: tidelog.Queue, pool: ThreadPoolExecutor
) -> None:
    jobs.put(1)
    job = take(jobs)
    waiting = start(pool, db, jobs.get, "ben")
    assert job.release() if how == "release" else job.nack(delay=0)
    assert waiting.result(LONG).value == 1


def test_after_its_last_delivery_a_failing_job_is_dead(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_deliveries=3)
    queue.put(1)
    for left in (2, 1, 0):
        assert take(queue).nack(f"{left} left", delay=0)
    stats = queue.stats()
    assert (stats.depth, stats.dead, stats.failures) == (0, 1, 3)
    assert db.xlen("jobs") == 0 == db.xlen("jobs:holds")


def test_fail_gives_a_job_up_at_once(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put(1)
    assert take(jobs).fail("no such customer")
    assert jobs.stats().depth == 0 and db.xlen("jobs") == 0
    (dead,) = jobs.dead
    assert dead.reason == "no such customer" and dead.deliveries == 1


def test_release_gives_a_job_back_as_if_it_had_not_been_delivered(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    for _ in range(10):
        job = take(jobs)
        assert job.deliveries == 1 and job.release()
    assert jobs.failures() == []
    assert take(jobs, "ben").ack()


# --- done_and


def test_done_and_puts_in_one_unit_with_the_ack(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    mails, bills = db.queue("mails"), db.queue("bills", codec="str")
    jobs.put("order")
    job = take(jobs)
    lsn = db.barrier().lsn
    assert job.done_and(mails.new({"to": "ann"}, headers={"trace": "7"}), bills.new("bill"))
    assert job.state == "acked" and len(jobs) == 0
    mail = take(mails)
    assert mail.value == {"to": "ann"} and mail.headers == {"trace": "7"}
    assert drain(bills) == ["bill"]
    assert db.barrier().lsn > lsn


def test_done_and_may_put_into_its_own_queue(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    assert take(jobs).done_and(jobs.new(2), jobs.new(3))
    assert drain(jobs) == [2, 3]


def test_done_and_without_puts_is_an_ack(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    assert take(jobs).done_and()
    assert len(jobs) == 0


def test_done_and_of_a_lost_job_puts_nothing(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = lost(jobs, clock)
    assert not job.done_and(db.queue("mails").new(1)) and job.state == "lost"
    assert db.queue("mails").stats().depth == 0


def test_done_and_takes_dedup_ids(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    mails = db.queue("mails")
    jobs.put_many([1, 2])
    for job in jobs.consume("anna", block=0):
        assert job.done_and(mails.new("a", dedup_id="a"), mails.new("b", dedup_id="b"))
    assert drain(mails) == ["a", "b"]


def test_done_and_into_a_full_queue_leaves_the_job_open(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    mails = db.queue("mails", max_depth=1)
    mails.put(1)
    jobs.put(1)
    job = take(jobs)
    with pytest.raises(tidelog.QueueFull, match="'mails'.*you still hold the job"):
        job.done_and(mails.new(2))
    assert job.state == "open" and len(mails) == 1
    assert drain(mails) == [1]
    assert job.done_and(mails.new(2))


def test_done_and_does_not_refuse_a_duplicate(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    mails = db.queue("mails", max_depth=1)
    mails.put(1, dedup_id="x")
    jobs.put(1)
    assert take(jobs).done_and(mails.new(1, dedup_id="x"))
    assert len(mails) == 1


def test_done_and_counts_a_queue_once_however_it_was_opened(
    db: tidelog.Store, jobs: tidelog.Queue
) -> None:
    one, other = db.queue("mails", max_depth=1), db.queue("mails", max_depth=1)
    jobs.put(1)
    with pytest.raises(tidelog.QueueFull):
        take(jobs).done_and(one.new(1), other.new(2))
    assert len(one) == 0


def test_done_and_takes_the_place_that_it_leaves(db: tidelog.Store) -> None:
    queue = db.queue("jobs", max_depth=1)
    queue.put("first step")
    assert take(queue).done_and(queue.new("second step"))
    assert drain(queue) == ["second step"]


def test_new_refuses_as_put_does(jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.EncodeError):
        jobs.new(object())
    with pytest.raises(tidelog.DataError, match="dedup_id"):
        jobs.new(1, dedup_id="")
    with pytest.raises(tidelog.DataError, match="headers"):
        jobs.new(1, headers={"a": 1})  # type: ignore[dict-item]


def test_done_and_refuses_what_new_did_not_make(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put(1)
    job = take(jobs)
    with pytest.raises(tidelog.DataError, match="queue.new"):
        job.done_and("a value")  # type: ignore[arg-type]
    with pytest.raises(tidelog.DataError, match="database"):
        job.done_and(db.db(3).queue("jobs").new(1))
    assert job.state == "open" and job.ack()


# --- the block


def test_an_exception_in_the_block_is_recorded_logged_and_swallowed(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    id = jobs.put(1)
    with take(jobs) as job:
        raise ValueError("no such customer")
    assert job.state == "given" and jobs.stats().paused == 1
    assert jobs.failures()[0].error == "ValueError: no such customer"
    assert "raise ValueError" in jobs.failures()[0].traceback
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("tidelog.queue", logging.ERROR)
    for part in ("jobs", id, "delivery 1", "ValueError: no such customer"):
        assert part in record.getMessage()
    assert record.exc_info and record.exc_info[0] is ValueError


def test_an_exception_in_the_block_goes_on_its_way_if_asked_to(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put(1)
    with pytest.raises(ValueError, match="no such customer"):
        for job in jobs.consume("anna", block=0, reraise=True):
            with job:
                raise ValueError("no such customer")
    assert jobs.stats().paused == 1 and len(jobs.failures()) == 1
    assert not caplog.records  # the caller that catches it logs it


def test_ctrl_c_in_the_block_releases_the_job(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    with pytest.raises(KeyboardInterrupt):
        with take(jobs):
            raise KeyboardInterrupt
    assert jobs.failures() == []
    assert take(jobs, "ben").deliveries == 1


def test_ctrl_c_stays_ctrl_c_when_the_job_cannot_be_released(
    jobs: tidelog.Queue,
    clock: testing.Clock,
    full_disk: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    id = jobs.put(1)
    with pytest.raises(KeyboardInterrupt):
        with take(jobs):
            full_disk(True)
            raise KeyboardInterrupt
    full_disk(False)
    assert id in caplog.text
    gc.collect()
    clock.advance(30)
    assert take(jobs, "ben").value == 1


def test_a_generator_that_is_closed_in_the_block_releases_the_job(jobs: tidelog.Queue) -> None:
    def values() -> Iterator[Any]:
        for job in jobs.consume("anna", block=0):
            with job:
                yield job.value

    jobs.put(1)
    found = values()
    assert next(found) == 1
    found.close()  # type: ignore[attr-defined]
    assert jobs.failures() == []
    assert take(jobs, "ben").deliveries == 1


def test_sys_exit_in_the_block_is_a_failure(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    with pytest.raises(SystemExit):
        with take(jobs):
            sys.exit("out of memory")
    assert jobs.stats().paused == 1
    assert jobs.failures()[0].error == "SystemExit: out of memory"


def test_a_job_that_was_lost_in_the_block_is_logged(
    jobs: tidelog.Queue, clock: testing.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    id = jobs.put(1)
    with lost(jobs, clock) as job:
        pass
    assert job.state == "lost"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and id in record.getMessage()


def test_an_exception_after_the_job_was_settled_does_not_vanish(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put(1)
    try:
        with take(jobs) as job:
            assert job.ack()
            raise ValueError("after the ack")
    except ValueError:
        pass
    else:
        assert any("after the ack" in record.getMessage() for record in caplog.records)
    assert job.state == "acked" and len(jobs) == 0


def lost(queue: tidelog.Queue, clock: testing.Clock) -> tidelog.Job:
    """A job that was given to another worker while this one had it."""
    job = next(queue.consume("anna", block=0, time_limit=1))
    clock.advance(2)
    clock.advance(100)
    other = take(queue, "ben")
    assert other.id == job.id and other.deliveries == 2
    other.release()
    return job


@pytest.mark.parametrize("call", ["ack", "nack", "fail", "release", "done_and", "extend"])
def test_a_job_that_was_lost_is_left_alone(
    call: str, db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = lost(jobs, clock)
    before = db.digest()
    assert not (job.extend(5) if call == "extend" else getattr(job, call)())
    assert job.state == "lost" and db.digest() == before


# --- looking


def test_stats_in_every_state(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=10)
    queue.put_many(range(7))
    clock.advance(10)
    in_hand = [take(queue, "anna"), take(queue, "anna"), take(queue, "ben")]
    take(queue).nack("not now")
    take(queue).fail("never")
    take(queue).ack()
    stats = queue.stats()
    assert (stats.name, stats.group) == ("jobs", "workers")
    assert (stats.depth, stats.waiting, stats.paused) == (5, 1, 1)
    assert stats.in_flight == {"anna": 2, "ben": 1}
    assert (stats.dead, stats.failures, stats.kept) == (1, 2, 2)
    assert stats.oldest_seconds == 10
    assert len(queue) == 5
    for job in in_hand:
        assert job.ack()
    clock.advance(60)
    assert drain(queue) == [3, 6]  # the retry before the new one
    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.paused, stats.kept) == (0, {}, 0, 7)
    assert stats.oldest_seconds is None


def test_stats_of_jobs_that_a_dead_process_had(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        queue.put(1)
        take(queue, "anna")
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        assert queue.stats().in_flight == {"anna": 1}


def test_stats_tell_rates(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put(0)
    first = jobs.stats()
    assert first.put_per_second is None and first.done_per_second is None
    jobs.put_many(range(19))
    clock.advance(10)
    for _ in range(5):
        take(jobs).ack()
    stats = jobs.stats()
    assert stats.put_per_second == pytest.approx(1.9)
    assert stats.done_per_second == pytest.approx(0.5)


def test_stats_are_json(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    take(jobs)
    found = json.loads(json.dumps(jobs.stats().as_dict()))
    assert found["depth"] == 1 and found["in_flight"] == {"anna": 1}
    assert set(found) == {
        "name", "group", "depth", "waiting", "in_flight", "paused", "scheduled", "dead",
        "failures", "kept", "oldest_seconds", "put_per_second", "done_per_second", "by_priority", "cancelled",
        "hanging", "killed",
    }  # fmt: skip


def test_stats_do_not_change(jobs: tidelog.Queue) -> None:
    with pytest.raises(AttributeError):
        jobs.stats().depth = 5  # type: ignore[misc]


def test_peek_shows_what_waits_and_delivers_nothing(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    ids = [jobs.put(n, headers={"n": str(n)}) for n in range(4)]
    take(jobs)
    before = db.digest()
    found = jobs.peek()
    assert [job.id for job in found] == ids[1:]
    assert [job.value for job in found] == [1, 2, 3]
    assert found[0].headers == {"n": "1"} and found[0].raw == b"1"
    assert found[0].enqueued_at == clock.now() and found[0].problem is None
    assert [job.value for job in jobs.peek(2)] == [1, 2]
    assert db.digest() == before


def test_peek_shows_what_cannot_be_decoded(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    db.xadd("jobs", {"value": "{"})
    db.xadd("jobs", {"other": "1"})
    bad, foreign = jobs.peek()
    assert bad.value is None and bad.raw == b"{" and "json" in (bad.problem or "")
    assert foreign.value is None and "no field 'value'" in (foreign.problem or "")
    assert jobs.stats().dead == 0


def test_failures_come_newest_first(jobs: tidelog.Queue) -> None:
    a, b = jobs.put("a"), jobs.put("b")
    for number in range(2):
        for job in [take(jobs), take(jobs)]:
            assert job.nack(f"{job.value}{number}", delay=0)
    assert [failure.error for failure in jobs.failures()] == ["b1", "a1", "b0", "a0"]
    assert [failure.error for failure in jobs.failures(a)] == ["a1", "a0"]
    assert {failure.job_id for failure in jobs.failures(b)} == {b}
    assert [failure.error for failure in jobs.failures(a, count=1)] == ["a1"]
    assert len(jobs.failures(count=3)) == 3
    assert jobs.failures("1-1") == []


def test_failures_are_capped(db: tidelog.Store) -> None:
    """About: whole nodes of the stream go."""
    queue = db.queue("jobs", max_failures=100, max_deliveries=10_000)
    queue.put(1)
    for number in range(1_000):
        assert take(queue).nack(str(number), delay=0)
    assert 100 <= db.xlen("jobs:failures") <= 200
    assert queue.failures(count=1)[0].error == "999"


def test_abandoned_jobs_do_not_exceed_the_cap_of_failures(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue = db.queue("jobs", max_failures=100, max_deliveries=10_000, retry_after=1)
    queue.put_many(range(50))
    for _ in range(12):
        assert sum(1 for job in queue.consume("anna", batch=50, block=0)) == 50
        gc.collect()
        clock.advance(2)
    assert 100 <= db.xlen("jobs:failures") <= 250


# --- the rest


def test_purge_drops_what_waits_or_pauses_and_nothing_in_flight(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(5))
    job = take(jobs)
    take(jobs).nack("not now")
    assert jobs.purge() == 4
    assert jobs.stats().depth == 1 and db.xlen("jobs") == 1 and db.xlen("jobs:holds") == 0
    clock.advance(1000)
    assert jobs.get("ben", block=0) is None
    assert job.ack()
    jobs.put("after")
    assert jobs.stats().waiting == 1 and drain(jobs) == ["after"]


def test_purge_of_an_empty_queue(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    assert jobs.purge() == 0 and db.keys() == []
    jobs.put(1)
    assert drain(jobs) == [1]
    assert jobs.purge() == 0


def test_purge_before_the_first_fetch(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    jobs.put_many(range(2_500))
    assert jobs.purge() == 2_500
    assert db.xlen("jobs") == 0 == len(jobs)


def test_purge_makes_room(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    queue = db.queue("jobs", max_depth=1)
    queue.put(1)
    putting = start_putting(pool, queue, lambda: queue.put(2))
    assert queue.purge() == 1
    putting.result(LONG)


def test_queues_of_one_name_in_a_store_are_one(db: tidelog.Store) -> None:
    one, other = db.queue("jobs"), db.queue("jobs")
    one.put(1)
    job = take(other)
    assert one.stats().in_flight == {"anna": 1} and one.get("ben", block=0) is None
    assert job.ack()


def test_a_queue_in_another_database(db: tidelog.Store) -> None:
    third = db.db(3)
    queue = third.queue("jobs", max_deliveries=1)
    queue.put(1)
    db.queue("jobs").put("zero")
    with take(queue) as job:
        assert job.value == 1
        raise ValueError
    assert queue.stats().dead == 1 and db.queue("jobs").stats().dead == 0
    assert queue.dead.redrive() == 1 and drain(queue) == [1]
    assert set(third.keys()) >= {b"jobs", b"jobs:dead", b"jobs:failures"}
    assert drain(db.queue("jobs")) == ["zero"]


def test_a_store_that_decodes_responses(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", decode_responses=True) as db:
        queue = db.queue("jobs", max_deliveries=1)
        first = queue.put("ä", dedup_id="x", headers={"h": "ü"})
        assert isinstance(first, str) and queue.put("b", dedup_id="x") == first
        with take(queue) as job:
            assert (job.value, job.headers, job.worker) == ("ä", {"h": "ü"}, "anna")
            raise ValueError("ö")
        (dead,) = queue.dead
        assert (dead.raw, dead.value) == ('"ä"'.encode(), "ä")
        assert queue.failures()[0].error == "ValueError: ö"
        assert db.xrange("jobs:dead")[0][1]["value"] == '"ä"'


def test_a_view_at_another_level(tmp_path: Path) -> None:
    """`written` does not wait for the disk to sync: not even for one that refuses to."""
    with tidelog.open(tmp_path / "s", fsync="always") as db:
        queue = db.at("written").queue("jobs")
        queue.put(1)
        assert queue.put_many([2, 3]) == 2
        assert drain(queue) == [1, 2, 3]
        assert queue.store._level and len(db.queue("jobs")) == 0


def test_a_view_with_receipts(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        view = db.receipts()
        queue = view.queue("jobs")
        seen = []
        for call in (
            lambda: queue.put(1),
            lambda: queue.put(1, dedup_id="x"),
            lambda: queue.put_many([2]),
            lambda: take(queue).ack(),
            lambda: queue.purge(),
        ):
            call()
            assert view.last_receipt is not None
            seen.append(view.last_receipt.lsn)
        assert seen == sorted(set(seen))


def test_a_read_only_store_may_be_looked_at(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s") as db:
        queue = db.queue("jobs", max_deliveries=1)
        queue.put_many(["bad", "in hand", "waiting"])
        with take(queue):
            raise ValueError("no")
        job = take(queue)
        with tidelog.open(tmp_path / "s", read_only=True) as reader:
            seen = reader.queue("jobs")
            stats = seen.stats()
            assert (stats.depth, stats.waiting, stats.dead) == (2, 1, 1)
            assert stats.in_flight == {"anna": 1} and len(seen) == 2
            assert [job.value for job in seen.peek()] == ["waiting"]
            assert seen.failures()[0].error == "ValueError: no"
            (dead,) = seen.dead.list()
            assert dead.value == "bad" and seen.dead.count() == 1
            assert seen.dead.get(dead.id) is not None
            assert names_of(reader) == [("jobs", "workers")]
            for write in (
                lambda: seen.put(1),
                lambda: seen.put(1, dedup_id="x"),
                lambda: seen.put_many([1]),
                lambda: seen.get(block=0),
                lambda: next(seen.consume()),
                lambda: seen.purge(),
                lambda: seen.dead.redrive(),
                lambda: seen.dead.purge(),
            ):
                with pytest.raises(tidelog.ReadOnlyError):
                    write()
        assert job.ack()


def test_queue_opens_a_store_and_closes_it(tmp_path: Path) -> None:
    queue = tidelog.queue(tmp_path / "s", "jobs")
    queue.put(1)
    with pytest.raises(tidelog.StoreLocked):
        tidelog.open(tmp_path / "s")
    queue.close()
    queue.close()
    assert queue.store.closed
    with pytest.raises(tidelog.StoreClosed):
        queue.put(2)
    with tidelog.queue(tmp_path / "s", "jobs") as again:
        assert len(again) == 1
    assert again.store.closed


def test_a_queue_of_an_open_store_does_not_close_it(db: tidelog.Store) -> None:
    with db.queue("jobs") as queue:
        queue.put(1)
    queue.close()
    assert not db.closed and len(queue) == 1


def test_a_bad_option_opens_no_store(tmp_path: Path) -> None:
    with pytest.raises(tidelog.DataError, match="max_deliveries"):
        tidelog.queue(tmp_path / "s", "jobs", max_deliveries=0)
    assert not (tmp_path / "s").exists()


def test_a_closed_store_ends_a_loop_with_an_error(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    waiting = start(pool, db, db.queue("jobs").get)
    db.close()
    with pytest.raises(tidelog.StoreClosed):
        waiting.result(LONG)


def test_a_closed_store_ends_a_wait_for_room(tmp_path: Path, clock: testing.Clock) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no", clock=clock)
    queue = db.queue("jobs", max_depth=1)
    queue.put(1)
    errors: list[BaseException] = []

    def put() -> None:
        try:
            queue.put(2)
        except tidelog.StoreClosed as error:
            errors.append(error)

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    until(lambda: queue._engine.known.room, "it does not wait for room")
    db.close()
    thread.join(LONG)
    assert errors


def test_the_name_of_a_queue_with_delayed_jobs_only(db: tidelog.Store) -> None:
    job = db.queue("mails").put(1, delay=60)
    db.xadd("other:late", {"f": "v"})
    assert names_of(db) == [("mails", "workers")]
    assert db.queue("mails").cancel(job)
    assert names_of(db) == []


def test_queue_names(db: tidelog.Store) -> None:
    db.queue("only put to").put(1)
    assert db.queue("b", "readers").get(block=0) is None
    failing = db.queue("a", max_deliveries=1)
    failing.put(1)
    take(failing).nack("no")
    db.set("a string", 1)
    db.xadd("no queue", {"field": 1})
    db.xgroup_create("no queue", "workers", id="0")
    db.xadd("mine:later", {"field": 1})
    db.xadd("mine:priority:3", {"field": 1})
    assert names_of(db) == [
        ("a", "workers"), ("b", "readers"), ("only put to", "workers"),
    ]  # fmt: skip
    assert names_of(db.db(1)) == []


def test_neither_queues_nor_jobs_pickle(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    with pytest.raises(TypeError, match="open the store in the other process"):
        pickle.dumps(jobs)
    with pytest.raises(TypeError, match="lease belongs to this process"):
        pickle.dumps(take(jobs))


def test_the_streams_are_any_clients(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    """Put by XADD, taken by XREADGROUP: the queue and bare commands share one group."""
    db.xadd("jobs", {"value": '"theirs"', "header.a": "1"})
    job = take(jobs)
    assert job.value == "theirs" and job.headers == {"a": "1"} and job.ack()
    id = jobs.put("ours")
    ((_, [(got, fields)]),) = db.xreadgroup("workers", "another client", {"jobs": ">"})
    assert got.decode() == id and fields == {b"value": b'"ours"'}
    assert jobs.stats().in_flight == {"another client": 1}
    assert db.xack("jobs", "workers", got) == 1 and len(jobs) == 0


def test_a_store_with_queues_goes_with_its_last_reference(tmp_path: Path) -> None:
    queue = tidelog.queue(tmp_path / "s", "jobs", fsync="no")
    queue.put(1)
    job = take(queue)
    gone = weakref.ref(inside.core(queue.store))
    del queue, job
    gc.collect()
    until(lambda: gone() is None, "something keeps the store")
    with unlocked(lambda: tidelog.queue(tmp_path / "s", "jobs")) as again:
        assert len(again) == 1


def test_import_tidelog_brings_no_queue_and_no_asyncio_along() -> None:
    program = """
import sys, tidelog, tempfile
with tempfile.TemporaryDirectory() as place:
    with tidelog.open(place + "/s") as db:
        db.xadd("s", {"a": 1})
    assert not [name for name in sys.modules if name.startswith(("tidelog.jobs", "tidelog.api.queue"))]
    with tidelog.queue(place + "/s", "jobs") as queue:
        queue.put(1)
        with queue.get(block=0) as job:
            pass
assert "asyncio" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.returncode == 0, done.stderr


def test_many_threads_share_a_queue(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no", max_depth=50) as queue:
        done: list[int] = []

        def put(first: int) -> None:
            for number in range(first, first + 100):
                queue.put(number)

        def work() -> None:
            for job in queue.consume(batch=5):
                with job:
                    if job.value is None:
                        return
                    done.append(job.value)

        workers = [threading.Thread(target=work) for _ in range(3)]
        putters = [threading.Thread(target=put, args=(n * 100,)) for n in range(3)]
        for thread in workers + putters:
            thread.start()
        for thread in putters:
            thread.join(LONG)
        until(lambda: len(done) == 300, "not all is done")
        for _ in workers:
            queue.put(None)
        for thread in workers:
            thread.join(LONG)
        assert sorted(done) == list(range(300))
