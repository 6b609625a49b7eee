"""The dead of the durable queue: the evidence, looking, trying again, throwing away."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import inside

import tidelog
from tidelog import testing
from tidelog.aof import frame
from tidelog.aof.log import Log
from tidelog.jobs.rows import DeadJob

DAY = 86_400


@pytest.fixture
def db(clock: testing.Clock) -> Iterator[tidelog.Store]:
    with testing.store(clock) as store:
        yield store


@pytest.fixture
def jobs(db: tidelog.Store) -> tidelog.Queue:
    return db.queue("jobs", max_deliveries=3, retry_after=10)


def take(queue: tidelog.Queue, worker: str = "anna") -> tidelog.Job:
    job = queue.get(worker, block=0)
    assert job is not None
    return job


def bury(queue: tidelog.Queue, *values: Any) -> list[DeadJob]:
    """Have these given up; the dead that came of it."""
    known = {dead.id for dead in queue.dead}
    for value in values:
        queue.put(value, headers={"of": str(value)})
        assert take(queue).fail(f"no {value}")
    return [dead for dead in queue.dead if dead.id not in known]


def values(queue: tidelog.Queue) -> list[Any]:
    return [dead.value for dead in queue.dead]


def fail_three_times(queue: tidelog.Queue, clock: testing.Clock) -> None:
    for worker in ("anna", "ben", "anna"):
        with take(queue, worker) as job:
            raise LookupError(f"attempt {job.deliveries}")
        clock.advance(100)


# --- the evidence


def test_a_dead_job_tells_what_happened(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    id = jobs.put({"to": "ann"}, headers={"trace": "7"})
    born = clock.now()
    fail_three_times(jobs, clock)
    (dead,) = jobs.dead
    assert (dead.original_id, dead.value, dead.headers) == (id, {"to": "ann"}, {"trace": "7"})
    assert (dead.raw, dead.codec, dead.group) == (b'{"to":"ann"}', "json", "workers")
    assert dead.deliveries == 3 and dead.workers == ["anna", "ben"]
    assert "3 deliveries" in dead.reason and "LookupError: attempt 3" in dead.reason
    assert [failure.error for failure in dead.errors] == [
        f"LookupError: attempt {n}" for n in (1, 2, 3)
    ]
    assert [failure.worker for failure in dead.errors] == ["anna", "ben", "anna"]
    assert [failure.deliveries for failure in dead.errors] == [1, 2, 3]
    assert all("raise LookupError" in failure.traceback for failure in dead.errors)
    assert [(failure.at - born).total_seconds() for failure in dead.errors] == [0, 100, 200]
    assert dead.enqueued_at == born and (dead.died_at - born).total_seconds() == 200
    assert repr(dead).startswith(f"DeadJob(id={dead.id!r}, original_id={id!r}, reason=")


def test_a_dead_job_is_an_entry_of_a_stream(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    id = jobs.put(1, headers={"trace": "7"})
    assert take(jobs).fail("no such customer")
    ((entry, fields),) = db.xrange("jobs:dead")
    errors, workers = json.loads(fields.pop(b"errors")), json.loads(fields.pop(b"workers"))
    assert fields == {
        b"value": b"1", b"header.trace": b"7", b"id": id.encode(), b"group": b"workers",
        b"deliveries": b"1", b"reason": b"no such customer", b"codec": b"json",
    }  # fmt: skip
    assert workers == ["anna"]
    assert [(e["worker"], e["error"]) for e in errors] == [("anna", "no such customer")]
    assert jobs.dead.list()[0].id.encode() == entry


def test_a_job_dies_in_one_unit_with_its_ack(
    db: tidelog.Store, jobs: tidelog.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put(1)
    job = take(jobs)
    frames, add = [], Log.add

    def counted(log: Log, *args: Any) -> int:
        frames.append(args)
        return add(log, *args)

    monkeypatch.setattr(Log, "add", counted)
    assert job.fail("no")
    assert len(frames) == 1
    assert db.xlen("jobs") == 0 and db.xlen("jobs:dead") == 1


def test_abandoned_jobs_die_too(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    jobs.put(1)
    for worker in ("anna", "ben", "carl"):
        take(jobs, worker)
        gc.collect()
        clock.advance(11)
    assert jobs.get("dora", block=0) is None
    (dead,) = jobs.dead
    assert dead.deliveries == 3 and dead.workers == ["anna", "ben", "carl"]
    assert "never finished" in dead.reason
    assert all("abandoned" in failure.error for failure in dead.errors)


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest unit is of 8 MiB here, so that tests of what outgrows one are quick."""
    monkeypatch.setattr(frame, "BODY_BYTES_MAX", 8 << 20)


def test_many_large_jobs_die_in_several_units(
    db: tidelog.Store, clock: testing.Clock, small_units: None
) -> None:
    """And come back in several."""
    queue = db.queue("jobs", codec="bytes", max_deliveries=1)
    assert queue.put_many(bytes([n]) * (300 << 10) for n in range(40)) == 40
    consumer = queue.consume("anna", batch=40, block=0)
    held = [next(consumer) for _ in range(40)]
    del held, consumer
    gc.collect()
    clock.advance(31)
    queue.put(b"new")
    assert take(queue, "ben").value == b"new"
    while queue.stats().depth > 1:
        assert queue.get("carl", block=0) is None
    assert queue.dead.count() == 40
    assert queue.dead.redrive() == 40 and len(queue) == 41


def test_the_evidence_outlasts_reopening(tmp_path: Any) -> None:
    clock = testing.Clock()
    for number in range(3):
        with tidelog.queue(tmp_path / "s", "jobs", max_deliveries=3, clock=clock) as queue:
            if not number:
                queue.put(1)
            take(queue, f"w{number}").nack(f"attempt {number}", delay=0)
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        (dead,) = queue.dead
        assert [failure.error for failure in dead.errors] == [f"attempt {n}" for n in range(3)]


def test_very_long_evidence_is_cut(jobs: tidelog.Queue) -> None:
    jobs.put(1)
    assert take(jobs).fail("x" * 1_000_000)
    (dead,) = jobs.dead
    assert len(dead.reason) < 10_000 and set(dead.reason) == {"x"}


# --- looking


def test_the_dead_are_listed_oldest_first(jobs: tidelog.Queue) -> None:
    bury(jobs, *range(5))
    assert [dead.value for dead in jobs.dead] == [0, 1, 2, 3, 4]
    assert [dead.value for dead in jobs.dead.list()] == [0, 1, 2, 3, 4]
    assert [dead.value for dead in jobs.dead.list(2)] == [0, 1]
    assert [dead.value for dead in jobs.dead.list(2, lambda dead: dead.value > 1)] == [2, 3]
    assert jobs.dead.list(0) == []
    assert jobs.dead.count() == len(jobs.dead) == jobs.stats().dead == 5


def test_there_may_be_none(jobs: tidelog.Queue) -> None:
    assert list(jobs.dead) == jobs.dead.list() == []
    assert jobs.dead.count() == 0 and bool(jobs.dead)
    assert jobs.dead.get("1-1") is None
    assert jobs.dead.redrive() == 0 == jobs.dead.purge()


def test_get_finds_one_by_its_id_among_the_dead(jobs: tidelog.Queue) -> None:
    first, second = bury(jobs, 1, 2)
    found = jobs.dead.get(second.id)
    assert found is not None and found.value == 2
    assert jobs.dead.get("1-1") is None


@pytest.mark.parametrize("id", ["", "x", "1-", "-1", "1-1-1", 5, None, "١-0"])
def test_what_is_no_id_is_refused(id: Any, jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError, match="looks like"):
        jobs.dead.get(id)
    if id is not None:
        with pytest.raises((tidelog.DataError, TypeError)):
            jobs.dead.redrive(id)


def test_more_than_a_page_of_them(jobs: tidelog.Queue) -> None:
    bury(jobs, *range(250))
    assert values(jobs) == list(range(250))
    assert jobs.dead.redrive(where=lambda dead: dead.value % 2 == 0) == 125
    assert values(jobs) == list(range(1, 250, 2))
    assert [job.value for job in jobs.peek(200)] == list(range(0, 250, 2))


def test_where_must_be_a_function(jobs: tidelog.Queue) -> None:
    condition: Any = "all"
    for call in (jobs.dead.list, jobs.dead.redrive, jobs.dead.purge):
        with pytest.raises(tidelog.DataError, match="where"):
            call(where=condition)


def test_the_dead_are_those_of_the_queue_whichever_group_gave_them_up(db: tidelog.Store) -> None:
    a, b = db.queue("jobs", "a"), db.queue("jobs", "b")
    assert b.get(block=0) is None  # from here on there is a group of that name
    a.put(1)
    assert take(a).fail("a gave it up")
    assert take(b).ack()
    for queue in (a, b):
        assert [dead.group for dead in queue.dead] == ["a"]
        assert queue.stats().dead == queue.dead.count() == 1


# --- trying again


def test_redrive_makes_jobs_of_them_again(jobs: tidelog.Queue) -> None:
    (dead,) = bury(jobs, 1)
    assert jobs.dead.redrive() == 1
    assert jobs.dead.count() == 0
    job = take(jobs)
    assert (job.value, job.headers, job.deliveries) == (1, {"of": "1"}, 1)
    assert job.origin == dead.original_id and job.id != dead.original_id


def test_the_origin_is_that_of_the_first_life(jobs: tidelog.Queue) -> None:
    (dead,) = bury(jobs, 1)
    for _ in range(3):
        assert jobs.dead.redrive() == 1
        job = take(jobs)
        assert job.origin == dead.original_id and job.headers == {"of": "1"}
        assert job.fail("again")
    assert jobs.dead.list()[0].errors[-1].error == "again"


def test_redrive_of_one_of_some_and_by_a_condition(jobs: tidelog.Queue) -> None:
    dead = bury(jobs, *range(6))
    assert jobs.dead.redrive(dead[0].id) == 1
    assert jobs.dead.redrive([dead[2].id, f"0{dead[2].id}", dead[0].id]) == 1
    assert jobs.dead.redrive(where=lambda job: job.reason == "no 4") == 1
    assert jobs.dead.redrive([dead[1].id, dead[3].id], where=lambda job: job.value == 3) == 1
    assert values(jobs) == [1, 5]
    assert [job.value for job in jobs.peek()] == [0, 2, 4, 3]


def test_a_dry_run_only_counts(db: tidelog.Store, jobs: tidelog.Queue) -> None:
    dead = bury(jobs, *range(3))
    before = db.digest()
    assert jobs.dead.redrive(dry_run=True) == 3
    assert jobs.dead.redrive([dead[0].id, "1-1"], dry_run=True) == 1
    assert jobs.dead.redrive(where=lambda job: job.value, dry_run=True) == 2
    assert db.digest() == before


def test_redrive_goes_once_over_those_that_are_there(jobs: tidelog.Queue) -> None:
    """A job that dies again meanwhile waits for the next one."""
    bury(jobs, *range(3))
    seen = []

    def again(dead: DeadJob) -> bool:
        seen.append(dead.value)
        bury(jobs, "another")
        return True

    assert jobs.dead.redrive(where=again) == 3
    assert seen == [0, 1, 2] and values(jobs) == ["another"] * 3


def test_a_redriven_job_wakes_a_worker(jobs: tidelog.Queue) -> None:
    bury(jobs, 1)
    consumer = jobs.consume("ben", block=0)
    assert jobs.dead.redrive() == 1
    assert next(consumer).value == 1


# --- throwing away


def test_purge_of_all_of_some_and_by_a_condition(jobs: tidelog.Queue) -> None:
    dead = bury(jobs, *range(6))
    assert jobs.dead.purge(dead[0].id) == 1
    assert jobs.dead.purge([dead[0].id, dead[1].id]) == 1
    assert jobs.dead.purge(where=lambda job: job.value == 4) == 1
    assert values(jobs) == [2, 3, 5]
    assert jobs.dead.purge() == 3
    assert jobs.dead.count() == 0 == len(jobs)


def test_purge_of_those_that_died_long_ago(jobs: tidelog.Queue, clock: testing.Clock) -> None:
    bury(jobs, "old")
    clock.advance(DAY)
    bury(jobs, "young")
    assert jobs.dead.purge(older_than=2 * DAY) == 0
    assert jobs.dead.purge(older_than=DAY) == 1
    assert values(jobs) == ["young"]
    assert jobs.dead.purge(older_than=0) == 1


@pytest.mark.parametrize("age", [-1, "1", True, float("nan")])
def test_an_age_is_a_number_of_seconds(age: Any, jobs: tidelog.Queue) -> None:
    with pytest.raises(tidelog.DataError, match="older_than"):
        jobs.dead.purge(older_than=age)


def test_what_many_abandoned_jobs_tell_is_capped_too(tmp_path: Path, clock: testing.Clock) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        queue = db.queue("jobs", max_failures=3, retry_after=1)
        queue.put_many(range(250))
        for _ in range(4):
            batch = queue.consume("anna", batch=250, block=0)
            held = list(batch)
            assert len(held) == 250
            del held, batch
            gc.collect()
            clock.advance(2)
        ben = queue.get("ben", block=0)
        clock.advance(1)
        assert ben is not None and queue.stats().failures <= 3
        inside.databases(db)[0].keys[b"jobs:failures"].check()  # type: ignore[union-attr]
        digest = db.digest()
    with tidelog.open(tmp_path / "s", clock=clock) as db:
        assert db.digest() == digest
