"""Limits of a queue: how many jobs workers hold at once, and how many are delivered in a period."""

from __future__ import annotations

import random
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from tests.until import parked, until

import tidelog
from tidelog import testing

OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 3}


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Any:
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        yield db


def taken(queue: Any, count: int, worker: str = "anna") -> list[Any]:
    """At most `count` jobs that the worker gets now, one by one."""
    jobs = []
    for _ in range(count):
        job = queue.get(worker, block=0)
        if job is None:
            break
        jobs.append(job)
    return jobs


# --- concurrency


def test_workers_hold_at_most_so_many_jobs(db: Any) -> None:
    queue = db.queue("q", concurrency=3, **OPTIONS)
    queue.put_many(range(9))
    jobs = taken(queue, 9) + taken(queue, 9, "ben")
    assert [job.value for job in jobs] == [0, 1, 2]
    assert jobs[1].ack() and queue.get("ben", block=0).value == 3
    assert jobs[0].fail("no") and queue.get("ben", block=0) is not None
    assert queue.get("ben", block=0) is None


def test_a_batch_is_cut(db: Any) -> None:
    queue = db.queue("q", concurrency=3, **OPTIONS)
    queue.put_many(range(9))
    with queue.consume("anna", batch=100, block=0) as jobs:
        seen = []
        for job in jobs:
            with job:
                seen.append(job.value)
                assert sum(queue.stats().in_flight.values()) <= 3
    assert seen == list(range(9))


def test_a_retry_needs_a_place(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", concurrency=1, **OPTIONS)
    queue.put_many(["a", "b"])
    queue.get("anna", block=0).nack("again", delay=2)
    second = queue.get("anna", block=0)
    assert second.value == "b"
    clock.advance(3)
    assert queue.get("anna", block=0) is None
    assert second.ack()
    assert queue.get("anna", block=0).value == "a"


def test_a_released_job_leaves_its_place(db: Any) -> None:
    queue = db.queue("q", concurrency=1, **OPTIONS)
    queue.put("a")
    assert queue.get("anna", block=0).release()
    assert queue.get("ben", block=0).deliveries == 1


def test_the_limit_survives_a_restart(tmp_path: Path, clock: testing.Clock) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("q", concurrency=2, **OPTIONS)
        queue.put_many(range(4))
        held = taken(queue, 4)
        db.close(drain=0)
    assert len(held) == 2
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("q", concurrency=2, **OPTIONS)
        assert queue.get("ben", block=0) is None  # the places are those of the earlier process
        clock.advance(9)
        for value in range(2):  # they were lost, and come one by one
            (job,) = taken(queue, 4, "ben")
            assert (job.value, job.deliveries) == (value, 2) and job.ack()


def test_a_worker_of_the_same_name_gets_its_jobs_back(tmp_path: Path, clock: testing.Clock) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("q", concurrency=1, **OPTIONS)
        queue.put_many(range(2))
        held = taken(queue, 2)
        db.close(drain=0)
    assert len(held) == 1
    with tidelog.open(root, fsync="no", clock=clock) as db:
        jobs = taken(db.queue("q", concurrency=1, **OPTIONS), 2)
        assert [(job.value, job.deliveries) for job in jobs] == [(0, 2)]


def test_groups_have_limits_of_their_own(db: Any) -> None:
    one = db.queue("q", "one", concurrency=1, **OPTIONS)
    two = db.queue("q", "two", **OPTIONS)
    one.subscribe()
    two.subscribe()
    one.put_many(range(3))
    assert len(taken(one, 3)) == 1 and len(taken(two, 3)) == 3


@pytest.mark.parametrize("end", ["ack", "nack", "fail", "release", "done_and"])
def test_the_end_of_a_job_wakes_a_waiting_worker(tmp_path: Path, end: str) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue = db.queue("q", concurrency=1)
        queue.put_many(["a", "b"])
        job = queue.get("anna")
        assert job is not None
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
        thread.start()
        parked(db)
        assert getattr(job, end)()
        thread.join(60)
        assert got[0] is not None


def test_an_acknowledgement_of_another_client_is_seen(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", concurrency=1, **OPTIONS)
    queue.put_many(["a", "b"])
    job = queue.get("anna", block=0)
    assert db.xack("q", "workers", job.id) == 1
    assert queue.get("ben", block=0).value == "b"


# --- rate


def test_a_rate_holds_in_every_period(db: Any, clock: testing.Clock) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    pick = random.Random(seed)
    queue = db.queue("q", rate="10/m", **OPTIONS)
    queue.put_many(range(400))
    times: deque[float] = deque()
    total = 0
    for _ in range(120):
        batch = pick.choice((1, 1, 3, 20))
        with queue.consume("anna", batch=batch, block=0) as jobs:
            for job in jobs:
                with job:
                    times.append(clock.monotonic())
                    total += 1
        while times and times[0] <= clock.monotonic() - 60:
            times.popleft()
        assert len(times) <= 10, seed
        clock.advance(pick.choice((0.001, 1.0, 2.9, 3.0, 3.1, 17.0, 59.9, 60.0)))
    assert total > 100


def test_a_queue_that_is_always_full_gets_nearly_its_rate(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", rate="100/m", **OPTIONS)
    queue.put_many(range(2000))
    total = 0
    for _ in range(1200):  # ten minutes
        total += sum(1 for job in taken(queue, 200) if job.ack())
        clock.advance(0.5)
    assert 10 * 95 <= total <= 10 * 100


def test_every_delivery_counts(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", rate="2/m", **OPTIONS)
    queue.put("a")
    for _ in range(2):
        assert queue.get("anna", block=0).nack("again", delay=0)
    clock.advance(1)
    assert queue.get("anna", block=0) is None
    clock.advance(64)
    assert queue.get("anna", block=0).deliveries == 3


def test_a_rate_survives_a_restart_and_ends_by_itself(tmp_path: Path, clock: testing.Clock) -> None:
    root = tmp_path / "store"
    for opening in range(2):
        with tidelog.open(root, fsync="no", clock=clock) as db:
            queue = db.queue("q", rate="3/m", **OPTIONS)
            queue.put_many(range(4))
            jobs = taken(queue, 4)
            assert len(jobs) == (0 if opening else 3)
            assert all(job.ack() for job in jobs)
    with tidelog.open(root, fsync="no", clock=clock) as db:
        clock.advance(130)
        assert not db.exists("q:rate:workers")
        assert len(taken(db.queue("q", rate="3/m", **OPTIONS), 4)) == 3


def test_another_rate_counts_what_was_delivered_before(db: Any, clock: testing.Clock) -> None:
    db.queue("q").put_many(range(9))
    assert len(taken(db.queue("q", rate="3/h", **OPTIONS), 9)) == 3
    assert len(taken(db.queue("q", rate="5/m", **OPTIONS), 9)) == 2
    assert len(taken(db.queue("q", **OPTIONS), 1)) == 1


def test_a_key_of_another_client(db: Any) -> None:
    queue = db.queue("q", rate="3/m", **OPTIONS)
    queue.put_many(range(9))
    for value in ("", "x", "5", "0 1:2", "5 1:2:3", "-5 1:2", "x 1:2"):
        db.set("q:rate:workers", value)
        assert len(taken(queue, 1)) == 1
    db.delete("q:rate:workers")
    db.xadd("q:rate:workers", {"a": "b"})
    with pytest.raises(tidelog.ResponseError, match="needs a string at key 'q:rate:workers'"):
        queue.get("anna", block=0)


def test_a_waiting_worker_goes_on_when_the_rate_allows_it(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue = db.queue("q", rate="2/s")
        queue.put_many(range(5))
        with queue.consume("anna", block=60) as jobs:
            assert [next(jobs).value for _ in range(5)] == list(range(5))


def test_schedules_tick_while_a_queue_waits_for_its_rate(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        db.schedule("s", queue="other", every=1)
        queue = db.queue("q", rate="1/d")
        queue.put_many(range(2))
        assert queue.get("anna") is not None

        def wait() -> None:
            with pytest.raises(tidelog.StoreClosed):
                queue.get("anna")

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: len(db.queue("other")) > 0, "no tick")
        db.close(drain=0)
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"rate": "0/m"},
        {"rate": "100"},
        {"rate": "100/x"},
        {"rate": "/m"},
        {"rate": "1.5/m"},
        {"rate": "-1/m"},
        {"rate": "99999999999/m"},
        {"rate": 100},
        {"rate": "\u0661/m"},
    ],
)
def test_bad_limits(db: Any, options: dict[str, Any]) -> None:
    with pytest.raises(tidelog.DataError, match=next(iter(options))):
        db.queue("q", **options)
