"""Leases: who keeps a job, for how long, and who is given it then."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.leases import LEASE, pass_time
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.jobs.work import leases
from tidelog.jobs.work.leases import Leases

LONG = 60  # seconds of real time after which a test gives up
DAY = 86_400


@pytest.fixture
def db(clock: testing.Clock) -> Iterator[tidelog.Store]:
    with testing.store(clock) as store:
        yield store


@pytest.fixture
def jobs(db: tidelog.Store) -> tidelog.Queue:
    return db.queue("jobs", retry_after=LEASE)


def take(queue: tidelog.Queue, worker: str = "anna") -> tidelog.Job:
    job = queue.get(worker, block=0)
    assert job is not None
    return job


def idle(db: tidelog.Store, job: tidelog.Job) -> float:
    """Seconds since the lease of a job was renewed."""
    (row,) = db.xpending_range("jobs", "workers", job.id, job.id, 1)
    seconds: float = row["time_since_delivered"] / 1000
    return seconds


# --- a job in hand


def test_the_lease_of_a_job_in_hand_is_renewed_three_times_over(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = take(jobs)
    for _ in range(100):
        clock.advance(1)
        assert idle(db, job) <= LEASE / 3
        assert jobs.get("ben", block=0) is None
    assert job.deliveries == 1 and job.ack()


def test_jobs_of_a_batch_that_were_not_handed_out_yet_are_in_hand_too(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    next(consumer).ack()
    pass_time(clock, 5 * LEASE)
    assert jobs.get("ben", block=0) is None
    assert [job.deliveries for job in consumer] == [1, 1]


def test_a_dropped_job_is_taken_over_when_its_lease_is_over(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    id = jobs.put(1)
    take(jobs)
    gc.collect()
    clock.advance(LEASE - 1)
    assert jobs.get("ben", block=0) is None
    clock.advance(1)
    job = take(jobs, "ben")
    assert (job.id, job.deliveries, job.worker) == (id, 2, "ben")
    (failure,) = jobs.failures()
    assert (failure.worker, failure.deliveries) == ("anna", 1) and "abandoned" in failure.error


def test_a_dropped_job_of_a_batch_is_taken_over_while_the_worker_goes_on(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0)
    kept, id = next(consumer), next(consumer).id
    gc.collect()
    pass_time(clock, LEASE + 1)
    job = take(jobs, "ben")
    assert (job.id, job.deliveries) == (id, 2) and jobs.get("ben", block=0) is None
    with kept:
        pass
    with next(consumer) as last:
        assert last.deliveries == 1
    clock.advance(1)
    assert jobs.stats().in_flight == {"ben": 1}


def test_a_job_of_a_process_that_ended_is_taken_over(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        queue.put(1)
        job = take(queue)
        pass_time(clock, 100)
    clock.advance(LEASE / 2)
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        assert queue.get("ben", block=0) is None
        clock.advance(LEASE / 2)
        assert take(queue, "ben").deliveries == 2
    with pytest.raises(tidelog.StoreClosed):
        job.ack()


def test_a_worker_of_the_same_name_need_not_wait(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        queue.put_many(range(5))
        consumer = queue.consume("anna", batch=3, block=0)
        job = next(consumer)
        assert job.value == 0
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        assert queue.stats().in_flight == {"anna": 1}, "what nobody saw went back"
        found = [(job.value, job.deliveries) for job in queue.consume("anna", block=0) if job.ack()]
        assert found == [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1)]


def test_two_workers_of_one_name_do_not_share_a_job(jobs: tidelog.Queue) -> None:
    jobs.put_many([1, 2])
    first = take(jobs, "anna")
    second = take(jobs, "anna")
    assert first.id != second.id and jobs.get("anna", block=0) is None


def test_a_waiting_worker_takes_over_when_the_lease_is_over(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    take(jobs)
    gc.collect()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(jobs.get("ben")))
    thread.start()
    until(lambda: db.info()["blocked_clients"], "it does not park")
    clock.advance(LEASE)
    thread.join(LONG)
    assert found[0].deliveries == 2


# --- time limit


def test_after_its_time_limit_a_lease_is_not_renewed(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = next(jobs.consume("anna", block=0, time_limit=100))
    pass_time(clock, 99)
    assert jobs.get("ben", block=0) is None
    pass_time(clock, LEASE + 1)
    other = take(jobs, "ben")
    assert other.deliveries == 2
    assert not job.ack() and other.ack()


def test_until_its_lease_is_over_a_job_beyond_its_time_limit_can_be_settled(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = next(jobs.consume("anna", block=0, time_limit=10))
    pass_time(clock, 15)
    assert jobs.get("ben", block=0) is None
    assert job.ack() and len(jobs) == 0


def test_a_namesake_waits_for_the_lease_of_a_job_beyond_its_time_limit(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = next(jobs.consume("anna", block=0, time_limit=10))
    pass_time(clock, 15)
    assert jobs.get("anna", block=0) is None
    pass_time(clock, LEASE)
    assert take(jobs, "anna").deliveries == 2
    assert not job.ack()


def test_a_worker_that_has_its_own_late_job_again_cannot_settle_it_with_the_old_one(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    old = next(jobs.consume("anna", block=0, time_limit=1))
    pass_time(clock, 32)
    new = take(jobs, "anna")
    assert (old.id, new.deliveries) == (new.id, 2)
    assert not old.ack() and not old.nack("late") and not old.done_and(jobs.new("never"))
    assert jobs.failures(old.id)[0].deliveries == 1  # abandoned, and nothing since
    assert new.ack() and len(jobs) == 0


def test_what_a_batch_finished_beyond_its_time_limit_is_acknowledged(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    consumer = jobs.consume("anna", batch=3, block=0, time_limit=10)
    job = next(consumer)
    pass_time(clock, 15)
    with job:
        pass
    clock.advance(1)
    assert jobs.stats().in_flight == {"anna": 2}


@pytest.mark.parametrize("limit", [0, -1, "1", True, float("inf")])
def test_a_time_limit_is_more_than_no_seconds(limit: Any, jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError, match="time_limit"):
        jobs.consume(time_limit=limit)


# --- extend


def test_an_extended_job_is_nobody_elses_for_so_long(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put(1)
    job = take(jobs)
    assert job.extend(1000)
    del job
    gc.collect()
    clock.advance(999)
    assert jobs.get("ben", block=0) is None
    clock.advance(1)
    assert take(jobs, "ben").deliveries == 2


def test_an_extended_job_is_nobody_elses_also_after_reopening(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        queue.put(1)
        assert take(queue).extend(1000)
    clock.advance(900)
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        assert queue.get("ben", block=0) is None
        assert queue.stats().in_flight == {"anna": 1}
        clock.advance(100)
        assert take(queue, "ben").deliveries == 2
        assert queue.store.xlen("jobs:holds") == 0


def test_a_shorter_extension_takes_nothing_back(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        queue.put(1)
        job = take(queue)
        assert job.extend(1000) and job.extend(1)
        assert queue.store.xlen("jobs:holds") == 1
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, retry_after=LEASE) as queue:
        clock.advance(999)
        assert queue.get("ben", block=0) is None
        clock.advance(1)
        assert take(queue, "ben").deliveries == 2


def test_extend_prolongs_a_time_limit(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put(1)
    job = next(jobs.consume("anna", block=0, time_limit=10))
    pass_time(clock, 9)
    assert job.extend(500)
    pass_time(clock, 499)
    assert jobs.get("ben", block=0) is None
    assert job.ack()


def test_the_record_of_an_extended_job_goes_with_it(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(5))
    ends: list[Callable[[tidelog.Job], bool]] = [
        lambda job: job.ack(),
        lambda job: job.done_and(),
        lambda job: job.fail("no"),
        lambda job: job.release(),
        lambda job: job.nack("later", delay=0),
    ]
    for end in ends:
        job = take(jobs)
        assert job.extend(100) and job.extend(200)  # the last one counts
        assert db.xlen("jobs:holds") == 1
        assert end(job)
        while (again := jobs.get("ben", block=0)) is not None and again.id == job.id:
            again.ack()
        if again is not None:
            again.release()
    assert db.xlen("jobs:holds") == 0


@pytest.mark.parametrize("seconds", [0, -1, "1", True, float("nan"), 1e12])
def test_extend_takes_seconds(seconds: Any, jobs: tidelog.Queue) -> None:
    jobs.put(1)
    job = take(jobs)
    with pytest.raises(tidelog.DataError, match="seconds"):
        job.extend(seconds)
    assert job.state == "open" and job.ack()


# --- stale consumers


def names(db: tidelog.Store) -> set[str]:
    return {row["name"].decode() for row in db.xinfo_consumers("jobs", "workers")}


def test_a_consumer_that_was_not_seen_for_a_day_is_removed(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(3))
    assert take(jobs, "gone").ack()
    holding = take(jobs, "holding")
    clock.advance(DAY - 60)
    assert take(jobs, "busy").release()
    assert names(db) == {"gone", "holding", "busy"}
    clock.advance(2 * 3600)  # it is looked for once an hour
    assert names(db) == {"holding", "busy"}
    assert holding.ack()


def test_many_consumers_that_were_not_seen_for_a_day_are_removed_beat_by_beat(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    """A program may make a queue object, and with it a worker without a name, for each of its requests."""
    for n in range(250):
        jobs.put(n)
        assert take(jobs, f"request-{n}").ack()
    jobs.put("long")
    holding = take(jobs, "holding")
    clock.advance(2 * DAY)
    for _ in range(3):
        clock.advance(1)
    assert names(db) == {"holding"}
    assert holding.ack()


def test_a_consumer_that_waits_is_not_removed(
    db: tidelog.Store, jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    jobs.put_many(range(2))
    waiting = jobs.consume("waiting")
    next(waiting).ack()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(next(waiting)))
    holding = take(jobs, "holding")
    thread.start()
    until(lambda: db.info()["blocked_clients"], "it does not park")
    clock.advance(3 * DAY)
    assert names(db) == {"waiting", "holding"}
    jobs.put("at last")
    thread.join(LONG)
    assert found[0].value == "at last" and found[0].ack() and holding.ack()


# --- the thread


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tidelog.Store]:
    with tidelog.open(tmp_path / "s", fsync="no") as store:
        yield store


def lease_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tidelog-leases"]


def test_a_thread_renews_leases(real: tidelog.Store) -> None:
    queue = real.queue("jobs", retry_after=0.3)
    queue.put(1)
    job = take(queue)
    assert queue.get("ben", block=0.5) is None
    assert job.ack()


def test_a_blocked_worker_keeps_its_job(real: tidelog.Store) -> None:
    """This process knows that the worker lives, whatever becomes of the thread that renews leases."""
    queue = real.queue("jobs", retry_after=0.05)
    queue.put(1)
    job = take(queue)
    queue._engine.leases.over = True
    queue._engine.leases._wake.ring()
    until(lambda: not lease_threads(), "the thread goes on")
    assert queue.get("ben", block=0.15) is None
    assert job.ack()


def test_there_is_one_thread_and_only_with_a_job_in_hand(tmp_path: Path) -> None:
    until(lambda: not lease_threads(), "those of earlier tests go on")
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        first, second = db.queue("a"), db.queue("b")
        first.put(1)
        second.put(1)
        assert not lease_threads()
        held = [take(first), take(second)]
        (thread,) = lease_threads()
        assert thread.daemon
        assert all(job.ack() for job in held)
    thread.join(LONG)
    assert not thread.is_alive()


def test_the_acks_of_a_batch_are_written_a_second_later_at_most(real: tidelog.Store) -> None:
    queue = real.queue("jobs")
    queue.put_many(range(3))
    consumer = queue.consume("anna", batch=3, block=0)
    with next(consumer):
        pass
    until(lambda: real.xlen("jobs") == 2, "they are not written")
    consumer.close()


def test_also_those_that_were_finished_beyond_their_time_limit(real: tidelog.Store) -> None:
    queue = real.queue("jobs")
    queue.put_many(range(3))
    consumer = queue.consume("anna", batch=3, block=0, time_limit=0.01)
    job = next(consumer)
    until(lambda: not queue._engine.leases.armed, "the thread does not go to sleep")
    with job:
        pass
    until(lambda: real.xlen("jobs") == 2, "they are not written")
    consumer.close()


def test_the_collector_may_free_jobs_at_any_moment(
    jobs: tidelog.Queue, clock: testing.Clock
) -> None:
    """Also while the deliveries that live are being listed."""
    jobs.put_many(range(6_000))
    gc.disable()
    try:
        consumer = jobs.consume("anna", block=0)
        held = [next(consumer) for _ in range(5_000)]
        gc.collect()
        gc.enable()
        for _ in range(20):
            for job in (held.pop(), held.pop()):
                circle: list[Any] = [job]
                circle.append(circle)
            del job, circle
            clock.advance(LEASE)  # a beat, and time to look who is late
            taken = jobs.get("ben", block=0)
            assert taken is not None and taken.ack()
    finally:
        gc.enable()


def beats(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The results of the beats from here on: when they want the next one."""
    wanted: list[float | None] = []
    beat = Leases.beat

    def counted(self: Leases) -> float | None:
        wanted.append(beat(self))
        return wanted[-1]

    monkeypatch.setattr(Leases, "beat", counted)
    return wanted


def test_a_beat_wants_the_next_one_when_it_is_needed(
    jobs: tidelog.Queue, clock: testing.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = beats(monkeypatch)
    jobs.put_many(range(2))
    clock.advance(1)
    assert wanted[-1] is None  # nobody has anything in hand
    job = next(jobs.consume("anna", block=0, time_limit=5))
    for _ in range(10):  # also when nothing is left to renew
        clock.advance(1)
        assert wanted[-1] is None or wanted[-1] >= 0.1
    assert job.ack()
    clock.advance(1)
    clock.advance(1)
    assert wanted[-1] is None


def test_the_thread_outlives_an_error(real: tidelog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    renew = leases._renew

    def fails_once(*args: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("unexpected")
        renew(*args)

    monkeypatch.setattr(leases, "_renew", fails_once)
    queue = real.queue("jobs", retry_after=0.03)
    queue.put_many(range(2))
    consumer = queue.consume("anna", batch=2, block=0)
    job = next(consumer)
    assert failed.wait(LONG)
    with job:
        pass
    until(lambda: real.xlen("jobs") == 1, "the thread is gone")
    consumer.close()


def test_what_was_gathered_is_written_when_the_process_ends_without_close(tmp_path: Path) -> None:
    program = """
import sys, tidelog
queue = tidelog.queue(sys.argv[1], "jobs")
queue.put_many(range(3))
consumer = queue.consume("anna", batch=3, block=0)
for _ in range(2):
    with next(consumer):
        pass
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path / "s")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with tidelog.open(tmp_path / "s") as db:
        assert [fields[b"value"] for _, fields in db.xrange("jobs")] == [b"2"]


def test_a_forked_child_settles_nothing(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no") as queue:
        queue.put(1)
        job = take(queue)
        child = os.fork()
        if not child:
            code = 1
            try:
                job.ack()
            except tidelog.StoreClosed:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert job.ack()
