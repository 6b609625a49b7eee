"""Jobs that are done: they go at once, or stay for a while (`keep`); and of several groups."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing
from tidelog.jobs.work import retention
from tidelog.jobs.work.retention import SWEEP_JOBS

HOUR = 3600


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Iterator[tidelog.Store]:
    path = tmp_path / "store"
    with tidelog.open(path, fsync="no", clock=clock) as store:
        yield store
        gc.collect()
        clock.advance(0)
        live = store.digest()
    with tidelog.open(path, clock=clock) as again:
        assert again.digest() == live


def take(queue: tidelog.Queue, worker: str = "anna") -> tidelog.Job:
    job = queue.get(worker, block=0)
    assert job is not None
    return job


def work(queue: tidelog.Queue, batch: int = 1) -> list[Any]:
    """The values of all jobs that are due, done."""
    values = []
    for job in queue.consume("anna", batch=batch, block=0):
        with job:
            values.append(job.value)
    return values


def sweep(queue: tidelog.Queue, clock: testing.Clock) -> None:
    """Have retention look: it does so with every beat while somebody has a job in hand."""
    queue.put("the last")
    job = take(queue, "sweeper")
    clock.advance(1)
    assert job.release() and queue.purge()


# --- nothing is kept


@pytest.mark.parametrize("batch", [1, 10])
def test_a_queue_that_is_worked_off_is_empty(batch: int, db: tidelog.Store) -> None:
    queue = db.queue("jobs")
    queue.put_many(range(1_000))
    assert work(queue, batch) == list(range(1_000))
    assert db.xlen("jobs") == 0 and queue.stats().kept == 0
    assert db.keys() == [b"jobs"]


def test_a_job_goes_with_its_ack_wherever_it_stands(db: tidelog.Store) -> None:
    queue = db.queue("jobs")
    queue.put_many(range(5))
    held = [take(queue) for _ in range(5)]
    for at in (3, 0, 4):
        assert held[at].ack()
    assert [fields[b"value"] for _, fields in db.xrange("jobs")] == [b"1", b"2"]
    assert held[1].ack() and held[2].ack() and db.xlen("jobs") == 0


# --- several groups


def fan_out(db: tidelog.Store, **options: Any) -> tuple[tidelog.Queue, tidelog.Queue]:
    """Two groups of one queue, both of them there."""
    a, b = db.queue("jobs", "a", **options), db.queue("jobs", "b", **options)
    assert a.get(block=0) is None and b.get(block=0) is None
    return a, b


def test_every_group_gets_every_job(db: tidelog.Store) -> None:
    a, b = fan_out(db)
    a.put_many(range(5))
    assert work(a) == [0, 1, 2, 3, 4] == work(b)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_job_goes_once_the_last_group_is_done_with_it(batch: int, db: tidelog.Store) -> None:
    a, b = fan_out(db)
    a.put_many(range(5))
    job = take(b)
    assert work(a, batch) == [0, 1, 2, 3, 4]
    assert db.xlen("jobs") == 5 and a.stats().depth == 0 and a.stats().kept == 5
    assert job.ack()
    assert db.xlen("jobs") == 4
    assert work(b, batch) == [1, 2, 3, 4]
    assert db.xlen("jobs") == 0


def test_done_and_keeps_what_another_group_needs(db: tidelog.Store) -> None:
    a, b = fan_out(db)
    a.put(1)
    assert take(a).done_and() and db.xlen("jobs") == 1
    assert take(b).done_and() and db.xlen("jobs") == 0


def test_a_job_that_one_group_gives_up_stays_for_the_other(db: tidelog.Store) -> None:
    a, b = fan_out(db)
    a.put(1)
    assert take(a).fail("no")
    assert work(b) == [1] and db.xlen("jobs") == 0


def test_groups_fail_apart(db: tidelog.Store, clock: testing.Clock) -> None:
    a, b = fan_out(db)
    a.put(1)
    assert take(a).nack("not now", delay=5)
    assert take(b).nack("nor here", delay=50)
    clock.advance(5)
    job = take(a)
    assert job.deliveries == 2 and b.get(block=0) is None
    assert a.stats().depth == 1 == b.stats().depth
    assert (a.stats().paused, b.stats().paused) == (0, 1)
    assert job.ack()
    clock.advance(45)
    assert take(b).ack() and db.xlen("jobs") == 0


def test_a_purge_leaves_what_another_group_needs(db: tidelog.Store) -> None:
    a, b = fan_out(db)
    a.put_many(range(5))
    assert a.purge() == 5
    assert a.stats().depth == 0 and db.xlen("jobs") == 5
    assert b.purge() == 5 and db.xlen("jobs") == 0


def test_each_group_has_a_depth_of_its_own(db: tidelog.Store) -> None:
    a, b = fan_out(db, max_depth=2)
    a.put_many([1, 2])
    assert work(a) == [1, 2]
    a.put(3, timeout=0)
    with pytest.raises(tidelog.QueueFull):
        b.put(4, timeout=0)
    assert work(b) == [1, 2, 3]


# --- a number of jobs is kept


def kept(db: tidelog.Store) -> list[int]:
    return [int(fields[b"value"]) for _, fields in db.xrange("jobs") if fields[b"value"].isdigit()]


def test_so_many_jobs_that_are_done_stay(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=10)
    queue.put_many(range(50))
    assert work(queue) == list(range(50))
    sweep(queue, clock)
    assert kept(db) == list(range(40, 50))
    assert queue.stats().kept == 10 and queue.stats().depth == 0


@pytest.mark.parametrize("batch", [1, 50])
def test_retention_looks_now_and_then(batch: int, db: tidelog.Store) -> None:
    """Without any beat; so somewhat more than `keep` may stay until it looks."""
    queue = db.queue("jobs", keep=10)
    queue.put_many(range(2_000))
    assert work(queue, batch) == list(range(2_000))
    assert 10 <= queue.stats().kept <= 10 + SWEEP_JOBS + batch


def test_a_job_that_is_not_done_is_never_dropped(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=2)
    queue.put_many(range(10))
    held = [take(queue) for _ in range(9)]
    for at in (8, 6, 5, 3, 7):
        assert held[at].ack()
    clock.advance(1)
    assert kept(db) == list(range(10))  # behind an open one nothing goes
    assert held[0].ack() and held[1].ack()
    clock.advance(1)
    assert kept(db) == list(range(2, 10))
    assert held[2].nack("not now")
    clock.advance(1)
    assert kept(db) == list(range(2, 10))
    assert held[4].ack()
    clock.advance(60)
    again = take(queue)
    assert again.value == 2 and again.ack() and work(queue) == [9]
    sweep(queue, clock)
    assert kept(db) == [8, 9]


def test_what_waits_is_never_dropped(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=timedelta(seconds=1))
    queue.put_many(range(10))
    clock.advance(HOUR)
    job = take(queue)
    clock.advance(1)
    assert kept(db) == list(range(10))
    assert job.ack() and work(queue) == list(range(1, 10))


def test_retention_waits_for_other_groups(db: tidelog.Store, clock: testing.Clock) -> None:
    a, b = fan_out(db, keep=2)
    a.put_many(range(10))
    slow = take(b)
    assert work(a) == list(range(10))
    clock.advance(1)
    assert kept(db) == list(range(10))
    assert slow.ack() and take(b).ack()
    sweep(a, clock)
    assert kept(db) == list(range(2, 10))
    assert work(b)[:8] == list(range(2, 10))
    sweep(a, clock)
    assert kept(db) == [9]  # and one that `sweep` put


def test_a_group_that_never_asked_keeps_all(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=2)
    db.xgroup_create("jobs", "audit", id="0", mkstream=True)
    queue.put_many(range(10))
    assert work(queue) == list(range(10))
    sweep(queue, clock)
    assert kept(db) == list(range(10))


def test_what_is_kept_is_delivered_to_nobody(db: tidelog.Store) -> None:
    queue = db.queue("jobs", keep=5)
    queue.put_many(range(5))
    assert work(queue) == list(range(5))
    assert queue.get("ben", block=0) is None and queue.peek() == [] and len(queue) == 0


def test_a_group_of_ones_own_may_read_what_was_kept(db: tidelog.Store) -> None:
    queue = db.queue("jobs", keep=5)
    queue.put_many(range(5))
    work(queue)
    assert work(db.queue("jobs", "late", keep=5)) == list(range(5))


# --- for so long


def test_jobs_that_are_done_stay_for_so_long(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=timedelta(hours=1))
    for number in range(4):
        queue.put(number)
        assert work(queue) == [number]
        clock.advance(0.3 * HOUR)
    sweep(queue, clock)
    assert kept(db) == [1, 2, 3]
    clock.advance(HOUR)
    sweep(queue, clock)
    assert kept(db) == [] and queue.stats().kept == 0


def test_age_drops_no_job_that_is_not_done(db: tidelog.Store, clock: testing.Clock) -> None:
    queue = db.queue("jobs", keep=timedelta(hours=1))
    queue.put_many(range(4))
    first, second, third = take(queue), take(queue), take(queue)
    assert second.ack()
    clock.advance(5 * HOUR)
    clock.advance(1)
    assert kept(db) == [0, 1, 2, 3]
    assert first.ack()
    clock.advance(1)
    assert kept(db) == [2, 3]
    assert third.ack() and work(queue) == [3]


def test_keep_for_no_time_is_keep_nothing(db: tidelog.Store) -> None:
    queue = db.queue("jobs", keep=timedelta(0))
    queue.put(1)
    assert work(queue) == [1] and db.xlen("jobs") == 0


@pytest.mark.parametrize("keep", [-1, True, 1.5, "1", None, timedelta(seconds=-1)])
def test_what_keep_takes(keep: Any, db: tidelog.Store) -> None:
    with pytest.raises(tidelog.DataError, match="keep"):
        db.queue("jobs", keep=keep)


def test_what_was_kept_goes_when_it_is_kept_no_more(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue = db.queue("jobs", keep=5)
    queue.put_many(range(5))
    work(queue)
    fewer = db.queue("jobs", keep=1)
    sweep(fewer, clock)
    assert kept(db) == [4]


def test_an_ack_does_not_fail_because_of_retention(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is done; what is kept too long goes another time."""

    def fails(*args: object) -> None:
        raise tidelog.OutOfSpace("no room")

    queue = db.queue("jobs", keep=1)
    queue.put_many(range(SWEEP_JOBS + 1))
    with monkeypatch.context() as patch:
        patch.setattr(retention, "run_unit", fails)
        for job in queue.consume("anna", block=0):
            assert job.ack()
    assert queue.stats().kept == SWEEP_JOBS + 1
    queue.put("one more")
    assert work(queue) == ["one more"]
    assert queue.stats().kept == 1
