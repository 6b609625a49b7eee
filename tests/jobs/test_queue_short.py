"""The short way of a job that is taken and done by itself: the same as the general one, and nothing of it stays."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import inside
from tests.jobs.leases import LEASE, pass_time

import tidelog
from tidelog import testing
from tidelog.jobs.work import fetch


@pytest.fixture
def db(clock: testing.Clock) -> Iterator[tidelog.Store]:
    with testing.store(clock) as store:
        yield store


@pytest.fixture
def jobs(db: tidelog.Store) -> tidelog.Queue:
    return db.queue("jobs", retry_after=LEASE)


# --- the short way and the general one

Step = tuple[Any, ...]
workers = st.sampled_from(["anna", "ben"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3)),
        st.tuples(st.just("take"), workers),
        st.tuples(st.just("take"), workers),
        st.tuples(st.sampled_from(["done", "ack", "keep", "drop", "release"])),
        st.tuples(st.just("nack"), st.sampled_from([0.0, 5.0])),
        st.tuples(st.just("advance"), st.sampled_from([1, 11, 31])),
        st.tuples(st.just("delete")),
    ),
    max_size=40,
)


def lived(history: list[Step], keep: int) -> list[Any]:
    """The results of a history, and the content of the store after it."""
    clock = testing.Clock()
    told: list[Any] = []
    with testing.store(clock) as db:
        jobs = db.queue("jobs", retry_after=LEASE, codec="json", keep=keep)
        consumers: dict[str, tidelog.Consumer] = {}
        held: list[tidelog.Job] = []
        kept: list[tidelog.Job] = []
        for name, *args in history:
            if name == "put":
                jobs.put_many(range(args[0]))
            elif name == "take":
                if args[0] not in consumers:
                    consumers[args[0]] = jobs.consume(args[0], block=0)
                job = next(consumers[args[0]], None)
                if job is None:
                    del consumers[args[0]]  # it has closed itself
                else:
                    held.append(job)
                    told.append((job.id, job.value, job.deliveries, job.worker))
            elif name == "advance":
                clock.advance(args[0])
            elif name == "delete":
                if held:
                    told.append(db.xdel("jobs", held[0].id))
            elif held:
                job = held.pop(0)
                if name == "done":
                    with job:
                        pass
                elif name == "nack":
                    told.append(job.nack("no", args[0]))
                elif name == "release":
                    told.append(job.release())
                elif name != "drop":
                    told.append(job.ack())
                told.append(job.state)
                if name == "keep":
                    kept.append(job)
                del job
        told.append(jobs.stats().as_dict())
        told.append(db.digest())
    return told


@settings(deadline=None, max_examples=50)
@given(steps, st.sampled_from([0, 2]))
def test_the_short_way_is_the_general_one(history: list[Step], keep: int) -> None:
    short = lived(history, keep)
    with mock.patch.object(fetch, "next_one", lambda *_: None):
        assert lived(history, keep) == short


# --- a delivery serves again


def test_a_job_that_is_kept_when_it_is_done_does_not_keep_the_next_one(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", block=0)
    done = []
    for _ in range(2):
        with next(consumer) as job:
            done.append(job)
    del job
    next(consumer)  # and dropped
    gc.collect()
    clock.advance(LEASE)
    again = jobs.get("ben", block=0)
    assert again is not None and (again.value, again.deliveries) == (2, 2)
    assert [(job.state, job.worker, job.ack(), job.nack()) for job in done] == [
        ("acked", "anna", True, False)
    ] * 2


def test_the_lease_of_every_job_is_renewed(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    consumer = jobs.consume("anna")
    for number in range(3):
        jobs.put(number)
        job = next(consumer)
        pass_time(clock, 2 * LEASE)
        assert jobs.get("ben", block=0) is None
        assert job.value == number and job.deliveries == 1 and job.ack()
    assert len(jobs) == 0


def test_a_delivery_that_a_beat_found_settled_is_renewed_all_the_same(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    """A beat may come between an acknowledgement and what its worker notes of it."""
    jobs.put_many(range(2))
    consumer = jobs.consume("anna", block=0)
    job = next(consumer)
    job._delivery.settled(job._number)  # as the beat does
    assert job.ack()
    job = next(consumer)
    pass_time(clock, 2 * LEASE)
    assert jobs.get("ben", block=0) is None
    assert job.ack()


def test_who_settles_a_job_that_another_thread_has_done_finds_it_done(jobs: tidelog.Queue) -> None:
    """A thread that looked at the job before it was done goes on when that has given its delivery away."""
    jobs.put_many(range(2))
    consumer = jobs.consume("anna", block=0)
    job = next(consumer)
    delivery = job._delivery
    assert job.ack()
    job._state = "open"  # what the other thread saw
    assert not job.extend(10) and not job.nack() and job.state == "lost"
    job._state, job._delivery = "open", delivery
    second = next(consumer)
    assert second._delivery is delivery
    assert not job.ack()
    assert consumer._workplace.spare is None and second.state == "open" and second.ack()


def test_each_job_has_its_own_time(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", block=0, time_limit=12)
    for _ in range(3):
        job = next(consumer)
        delivery = job._delivery
        assert delivery.renewed == clock.monotonic()
        assert delivery.until == clock.monotonic() + 12
        pass_time(clock, 5)
        assert job.ack()


def test_threads_may_share_a_consumer(jobs: tidelog.Queue) -> None:
    """A job that one worker has fetched may be handed to another before it is handed out."""
    jobs.put_many(range(2))
    consumer = jobs.consume("anna", block=0)
    quicker: list[tidelog.Job] = []

    def arm() -> None:
        jobs._engine.leases.armed = True
        quicker.append(next(consumer))

    with mock.patch.object(jobs._engine.leases, "arm", arm):
        job = next(consumer)
    assert [quicker[0].value, job.value] == [0, 1]
    assert quicker[0].ack() and job.ack() and len(jobs) == 0


def test_one_delivery_serves_all_jobs_of_a_worker_and_goes_with_it(jobs: tidelog.Queue) -> None:
    jobs.put_many(range(20))
    consumer = jobs.consume("anna", block=0)
    for _ in range(10):
        assert next(consumer).ack()
        assert len(jobs._engine.known.living) == 2 and not jobs._engine.known.deliveries()
    first, second = next(consumer), next(consumer)
    assert len(jobs._engine.known.deliveries()) == 2
    assert first.ack() and second.ack()
    assert len(jobs._engine.known.living) == 2  # with the workplace's empty one
    del consumer, first, second
    gc.collect()
    assert not jobs._engine.known.living


def test_a_consumer_at_its_end_keeps_no_job(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=5, block=0)
    for job in consumer:
        if job.value != 1:
            job.ack()
    del job
    pass_time(clock, LEASE)
    again = jobs.get("ben", block=0)
    assert again is not None and (again.value, again.deliveries) == (1, 2)


@pytest.mark.parametrize("others", [0, 10])
def test_a_job_that_is_finished_twice_is_gone_once(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock, others: int
) -> None:
    """An interrupt may strike between the note that it is done and its new state; or two threads leave its block."""
    jobs.put_many(range(20))
    consumer = jobs.consume("anna", batch=15, block=0)
    held = [next(consumer) for _ in range(15)]
    for job in held[: 1 + others]:
        with job:
            pass
    held[0]._state = "open"
    with held[0]:
        pass
    clock.advance(1)
    assert len(jobs) == db.xlen("jobs") == 19 - others
    before = db.digest()
    inside.landing(db).trouble = "to be rebuilt"
    assert db.digest() == before and len(db.xrange("jobs")) == 19 - others


# --- what is cached


def test_a_rebuilt_memory_has_the_cache_read_again(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = jobs.get("anna", block=0)
    assert job is not None and job.nack("no", delay=100)
    known = jobs._engine.known
    known.paused.clear()  # as if it had been lost
    known.heap.clear()
    inside.landing(db).trouble = "a unit broke off"
    clock.advance(50)
    assert jobs.get("anna", block=0) is None
    clock.advance(50)
    again = jobs.get("anna", block=0)
    assert again is not None and again.id == job.id


def test_a_rebuilt_memory_has_the_lanes_found_again(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    first = jobs.put(1, dedup_id="a", priority=3)
    later = jobs._engine.known.later
    # As if the queue had looked at records that memory has no more.
    later._lanes, later._lanes_at = (), math.inf
    inside.landing(db).trouble = "a unit broke off"
    assert jobs.put(2, dedup_id="a") == first
