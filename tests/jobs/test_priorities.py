"""Priorities of a queue: which jobs come first, and that a lane is as good a queue as the first one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.names import names_of
from tests.until import parked

import tidelog
from tidelog import testing
from tidelog.jobs.lanes import SEQ_BITS, lane_of, next_in_lane

OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 3}
LANE = "q:priority:%d"


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Any:
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        yield db


def values(queue: Any, count: int = 100, worker: str = "anna") -> list[Any]:
    """At most `count` jobs that a worker gets now and finishes, one by one."""
    found: list[Any] = []
    while len(found) < count and (job := queue.get(worker, block=0)) is not None:
        assert job.ack()
        found.append(job.value)
    return found


# --- order


def test_the_highest_priority_comes_first(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    for value, priority in (("a", 0), ("b", 3), ("c", 9), ("d", 3), ("e", 0), ("f", 9)):
        queue.put(value, priority=priority)
    assert [job.value for job in queue.peek()] == list("cfbdae")
    assert [job.priority for job in queue.peek()] == [9, 9, 3, 3, 0, 0]
    assert queue.stats().by_priority == {9: 2, 3: 2, 0: 2}
    assert len(queue) == queue.stats().waiting == 6
    assert values(queue) == list("cfbdae")
    assert len(queue) == 0 and queue.stats().by_priority == {}


def test_a_job_tells_its_priority(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=7, headers={"h": "1"}, ttl=60)
    queue.put("b")
    first, second = queue.get("anna", block=0), queue.get("anna", block=0)
    assert (first.priority, dict(first.headers), second.priority) == (7, {"h": "1"}, 0)
    assert first.ack() and second.ack() and first.priority == 7


def test_a_batch_has_jobs_of_one_priority(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(range(5))
    assert queue.put_many(range(10, 15), priority=2) == 5
    seen = []
    with queue.consume("anna", batch=4, block=0) as jobs:
        for job in jobs:
            with job:
                seen.append(job.value)
    assert seen == [10, 11, 12, 13, 14, 0, 1, 2, 3, 4]
    assert db.xlen("q") == db.xlen(LANE % 2) == 0


def test_no_priority_starves(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(["low"] * 5)
    queue.put_many(["high"] * 100, priority=9)
    assert values(queue, 50).count("low") == 5
    assert values(queue) == ["high"] * 55
    # an abandoned job of a low priority comes back, too
    queue.put("low")
    job = queue.get("ben", block=0)
    queue.put_many(["high"] * 100, priority=9)
    assert job.value == "low"
    del job
    clock.advance(20)
    assert "low" in values(queue, 12)


def test_the_turn_goes_to_the_job_that_was_put_first(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    for priority in (5, 2, 0):
        queue.put_many([priority] * 3, priority=priority)
        clock.advance(1)
    queue.put_many([9] * 100, priority=9)
    taken = values(queue, 90)
    assert [value for value in taken if value != 9] == [5, 5, 5, 2, 2, 2, 0, 0, 0]


def test_one_priority_alone_costs_no_turns(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(range(25), priority=4)
    assert values(queue) == list(range(25))


# --- IDs


def test_ids_tell_the_lane() -> None:
    last = 0
    for now in (5, 5, 6, 4):
        for priority in (1, 9):
            last = next_in_lane(last, now, priority)
            assert lane_of(last) == priority
    assert lane_of(5 << 64) == 0 and lane_of(5 << 64 | 1 << 21) == 0
    full = 5 << 64 | (4 << SEQ_BITS) - 1
    assert next_in_lane(full, 5, 3) == 6 << 64 | 3 << SEQ_BITS
    assert next_in_lane(full - 5, 5, 3, 5) == full - 4
    assert next_in_lane(full - 5, 5, 3, 6) == 6 << 64 | 3 << SEQ_BITS
    assert next_in_lane(7 << 64, 5, 3) == 7 << 64 | 3 << SEQ_BITS  # after another client's entry


def test_a_lane_that_is_full_goes_on_in_the_next_millisecond(db: Any) -> None:
    queue = db.queue("q", codec="bytes", **OPTIONS)
    count = (1 << SEQ_BITS) + 2_500
    queue.put_many([b"x"] * count, priority=1)
    ((first, _),) = db.xrange(LANE % 1, count=1)
    ((last, _),) = db.xrevrange(LANE % 1, count=1)
    assert int(last.split(b"-")[0]) == int(first.split(b"-")[0]) + 1
    assert db.xlen(LANE % 1) == count == len(queue)


# --- waiting workers


def test_a_put_wakes_a_waiting_worker(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue: Any = db.queue("q")
        puts: tuple[Callable[[], Any], ...] = (
            lambda: queue.put("x", priority=1),
            lambda: queue.put_many(["x"], priority=2),
            lambda: queue.put("x", priority=3, dedup_id="once"),
            lambda: queue.put("x", priority=4, delay=0.01),
        )
        for put in puts:
            got: list[Any] = []
            thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
            thread.start()
            parked(db)
            put()
            thread.join(60)
            assert got[0] is not None and got[0].ack()


@pytest.mark.parametrize("end", ["release", "nack"])
def test_a_job_that_goes_back_wakes_a_waiting_worker(tmp_path: Path, end: str) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue = db.queue("q", retry_after=3600)
        queue.put("x", priority=1)
        job = queue.get("anna")
        assert job is not None
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
        thread.start()
        parked(db)
        assert job.release() if end == "release" else job.nack(delay=0.01)
        thread.join(60)
        assert got[0] is not None


# --- each feature in a lane


def test_a_job_in_a_lane_is_retried_and_dies(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    id = queue.put("a", priority=6)
    for delivery in (1, 2, 3):
        job = queue.get("anna", block=0)
        assert (job.deliveries, job.priority, job.id) == (delivery, 6, id)
        with job:
            raise ValueError("on purpose")
        assert queue.stats().paused == (delivery < 3)
        clock.advance(60)
    (dead,) = queue.dead.list()
    assert (dead.original_id, dead.priority, len(dead.errors)) == (id, 6, 3)
    assert dead.errors[0].error == "ValueError: on purpose"
    assert len(queue) == 0 and db.xlen("q:priority:6:holds") == 0


def test_a_redriven_job_returns_to_its_lane(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    id = queue.put("a", priority=6)
    assert queue.get("anna", block=0).fail("no")
    queue.put("b", priority=5)
    assert queue.dead.redrive() == 1
    job = queue.get("anna", block=0)
    assert (job.value, job.priority, job.origin, lane_of(job._number)) == ("a", 6, id, 6)


def test_an_entry_of_another_client_returns_to_its_lane(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    db.xadd(LANE % 2, {"value": '"a"'})
    assert queue.get("anna", block=0).fail("no")
    (dead,) = queue.dead.list()
    assert dead.priority == 2
    assert queue.dead.redrive() == 1 and db.xlen(LANE % 2) == 1


def test_a_lease_in_a_lane_ends(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=1)
    late = queue.get("anna", block=0)
    for _ in range(20):
        clock.advance(1)  # beats renew the lease
    assert queue.get("ben", block=0) is None
    job = late
    with queue.consume("cleo", block=0, time_limit=1) as jobs:
        assert next(jobs, None) is None
    db.xclaim(LANE % 1, "workers", "thief", 0, [job.id])
    clock.advance(9)
    again = queue.get("ben", block=0)
    assert again.value == "a" and again.deliveries == 3
    assert not late.ack() and again.ack()


def test_a_dropped_job_of_a_lane_comes_back(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=1)
    queue.get("anna", block=0)
    assert queue.get("anna", block=0) is None
    clock.advance(20)
    assert queue.get("ben", block=0).deliveries == 2
    (failure,) = queue.failures()
    assert failure.worker == "anna"


def test_jobs_that_were_fetched_ahead_go_back_to_their_lane(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(range(5), priority=8)
    with queue.consume("anna", batch=5, block=0) as jobs:
        with next(jobs):
            pass
    assert queue.stats().waiting == 4 and sum(queue.stats().in_flight.values()) == 0
    assert sorted(values(queue)) == [1, 2, 3, 4]


def test_gathered_acknowledgements_of_a_lane_are_written_with_the_next_fetch(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(range(3), priority=8)
    with queue.consume("anna", batch=3, block=0) as jobs:
        for _ in range(3):
            with next(jobs):
                pass
        queue.put_many(["a", "b"], priority=9)
        with next(jobs) as job:
            assert job.value == "a"
            assert db.xlen(LANE % 8) == 0
    assert len(queue) == 1


def test_extend_and_fences_in_a_lane(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=1)
    job = queue.get("anna", block=0)
    assert job.extend(100)
    assert db.xlen("q:priority:1:holds") == 1
    job = None
    clock.advance(50)
    assert queue.get("ben", block=0) is None
    clock.advance(70)
    assert queue.get("ben", block=0).ack()
    assert db.xlen("q:priority:1:holds") == 0


def test_done_and_puts_into_lanes(db: Any) -> None:
    queue, more = db.queue("q", **OPTIONS), db.queue("more", **OPTIONS)
    queue.put("a", priority=1)
    job = queue.get("anna", block=0)
    puts = [queue.new(n, priority=n) for n in (3, 3, 5)]
    assert job.done_and(*puts, more.new("x", priority=9), more.new("y"))
    assert values(queue) == [5, 3, 3] and values(more) == ["x", "y"]


def test_a_dedup_id_counts_in_all_lanes(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    first = queue.put("a", dedup_id="x", priority=4)
    assert queue.put("b", dedup_id="x") == queue.put("c", dedup_id="x", priority=9) == first
    assert queue.put("d", dedup_id="x", delay=60) == first
    second = queue.put("e", dedup_id="y")
    assert queue.put("f", dedup_id="y", priority=9) == second
    third = queue.put("g", dedup_id="z", delay=60, priority=3)
    assert queue.put("h", dedup_id="z", priority=3) == third
    assert values(queue) == ["a", "e"]
    clock.advance(61)
    assert values(queue) == ["g"]


def test_delayed_jobs_go_to_their_lanes(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    id = queue.put("high", delay=10, priority=9)
    queue.put_many(["low"] * 3, delay=10)
    queue.put_many(["mid"] * 2, delay=10, priority=5)
    queue.put("now", priority=1)
    assert [job.priority for job in queue.peek(scheduled=True)] == [9, 0, 0, 0, 5, 5]
    assert values(queue) == ["now"]
    clock.advance(11)
    assert [job.value for job in queue.peek()] == ["high", "mid", "mid", "low", "low", "low"]
    assert queue.stats().waiting == len(queue) == 6
    job = queue.get("anna", block=0)
    assert (job.value, job.priority, job.origin) == ("high", 9, id) and job.ack()
    assert queue.stats().by_priority == {5: 2, 0: 3}
    assert values(queue) == ["mid", "mid", "low", "low", "low"]


def test_a_delayed_job_with_a_priority_is_moved_and_cancelled(
    db: Any, clock: testing.Clock
) -> None:
    queue = db.queue("q", **OPTIONS)
    one, two = (queue.put(n, delay=10, priority=2) for n in (1, 2))
    assert queue.cancel(one) and queue.move(two, delay=0)
    assert values(queue) == [2]


def test_a_job_expires_in_its_lane(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put_many(range(150), ttl=5, priority=3)
    queue.put("late", priority=1)
    clock.advance(6)
    assert values(queue) == ["late"]
    assert {(dead.reason, dead.priority) for dead in queue.dead} == {("expired", 3)}
    assert len(queue.dead) == 150


def test_purge_empties_all_lanes(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    for priority in (0, 4, 9):
        queue.put_many(range(1500), priority=priority)
    held = queue.get("anna", block=0)
    queue.get("anna", block=0).release()
    assert queue.purge() == 4499
    assert len(queue) == 1 and held.ack() and len(queue) == 0
    assert queue.purge() == 0


def test_results_of_jobs_with_a_priority(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    done, plain, dead, delayed = (
        queue.put("a", priority=3),
        queue.put("b", priority=2),
        queue.put("c", priority=1),
        queue.put("d", priority=9, delay=5),
    )
    with pytest.raises(tidelog.ResultLate):
        done.result(timeout=0)
    assert queue.get("anna", block=0).ack(result=5)
    assert queue.get("anna", block=0).ack()
    assert queue.get("anna", block=0).fail("no")
    clock.advance(6)
    assert queue.get("anna", block=0).ack(result="d")
    assert done.result(timeout=0) == 5 and delayed.result(timeout=0) == "d"
    with pytest.raises(tidelog.NoResult):
        plain.result(timeout=0)
    with pytest.raises(tidelog.JobFailed):
        dead.result(timeout=0)


def test_a_bound_counts_all_lanes(db: Any) -> None:
    queue = db.queue("q", max_depth=3, **OPTIONS)
    queue.put("a", priority=1)
    queue.put_many(["b", "c"], priority=2)
    for priority in (0, 5):
        with pytest.raises(tidelog.QueueFull):
            queue.put("d", priority=priority, timeout=0)
    job = queue.get("anna", block=0)
    with pytest.raises(tidelog.QueueFull):
        job.done_and(queue.new("x", priority=7), queue.new("y"))
    assert job.ack() and queue.put("d", priority=7, timeout=0)


def test_limits_count_all_lanes(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", concurrency=2, rate="3/m", **OPTIONS)
    for priority in (0, 1, 2):
        queue.put_many([priority] * 2, priority=priority)
    first, second = queue.get("anna", block=0), queue.get("ben", block=0)
    assert queue.get("anna", block=0) is None
    assert first.ack() and queue.get("anna", block=0).value == 1
    assert second.ack() and queue.get("anna", block=0) is None  # the rate
    clock.advance(64)
    assert queue.get("ben", block=0).value == 1


def test_the_end_of_a_job_in_a_lane_wakes_a_worker_that_a_limit_holds(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue = db.queue("q", concurrency=1)
        queue.put_many(["a", "b"], priority=1)
        job = queue.get("anna")
        assert job is not None
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
        thread.start()
        parked(db)
        assert job.ack()
        thread.join(60)
        assert got[0] is not None


@pytest.mark.parametrize("keep", [2, timedelta(seconds=30)])
def test_finished_jobs_of_a_lane_are_kept(db: Any, clock: testing.Clock, keep: Any) -> None:
    queue = db.queue("q", keep=keep, **OPTIONS)
    with queue.consume("anna", batch=50, block=0) as jobs:
        queue.put_many(range(600), priority=1)
        for _ in range(600):
            with next(jobs):
                pass
    assert queue.stats().kept == (2 if keep == 2 else 600)
    clock.advance(31)
    queue.put("x", priority=1)
    with queue.consume("anna", block=0) as jobs:
        for job in jobs:
            assert job.ack()
    assert queue.stats().kept == (2 if keep == 2 else 1)


def test_every_group_gets_the_jobs_of_all_lanes(db: Any) -> None:
    one, two = db.queue("q", "one", **OPTIONS), db.queue("q", "two", **OPTIONS)
    one.subscribe()
    one.put("a", priority=3)
    two.subscribe()  # later than the lane
    one.put("b", priority=3)
    one.put("c", priority=5)
    assert values(one) == ["c", "a", "b"]
    assert values(two) == ["c", "a", "b"]
    assert len(one) == len(two) == 0 and db.xlen(LANE % 3) == 0
    db.xgroup_create("q", "three", "0")  # by another client
    three = db.queue("q", "three", **OPTIONS)
    one.put("d", priority=5)
    assert values(one) == ["d"]
    assert values(three) == ["d"] and values(two) == ["d"] and db.xlen(LANE % 5) == 0


def test_lanes_without_a_worker_are_found(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=3)
    assert names_of(db) == [("q", "workers")]
    assert len(queue) == 1 and queue.stats().waiting == 1 and not db.exists("q")
    assert values(queue) == ["a"]
    assert names_of(db) == [("q", "workers")]


def test_a_lane_that_another_client_makes_is_found(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    assert queue.get("anna", block=0) is None
    db.xadd(LANE % 7, {"value": "1"})
    clock.advance(9)
    assert values(queue) == [1]
    db.delete("q", LANE % 7)
    queue.put(2, priority=7)
    assert values(queue) == [2]


def test_a_lane_that_is_deleted_takes_its_jobs_along(db: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", priority=7)
    job = queue.get("anna", block=0)
    queue.put_many(["b", "c"], priority=7)
    queue.put("d")
    with queue.consume("ben", batch=5, block=0) as jobs:
        with next(jobs) as second:
            assert second.value == "b"
        db.delete(LANE % 7)
        assert not job.ack()
        assert next(jobs).value == "c"  # it was fetched before
        with next(jobs) as last:
            assert last.value == "d"
    assert len(queue) == 0


def test_a_key_of_another_type_is_named(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    db.set(LANE % 4, "a string")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: queue.put("a", priority=4),
        lambda: queue.put("a", priority=4, dedup_id="x"),
        lambda: queue.get("anna", block=0),
    )
    for call in calls:
        with pytest.raises(tidelog.ResponseError, match="q:priority:4"):
            call()


def test_schedules_put_with_a_priority(db: Any, clock: testing.Clock) -> None:
    db.schedule("s", queue="q", every=60, value="tick", priority=5, catch_up="all")
    assert db.schedules.list()[0].priority == 5
    assert db.schedule("s", queue="q", every=60, value="tick", catch_up="all").priority == 0
    assert db.schedule("s", queue="q", every=60, value="tick", priority=5, catch_up="all")
    queue = db.queue("q", **OPTIONS)
    queue.put("low")
    clock.advance(200)
    jobs = [queue.get("anna", block=0) for _ in range(4)]
    assert [(job.value, job.priority) for job in jobs] == [("tick", 5)] * 3 + [("low", 0)]
    assert jobs[0].headers["schedule"] == "s"


# --- restarts


def test_lanes_survive_a_restart(tmp_path: Path, clock: testing.Clock) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue: Any = db.queue("q", **OPTIONS)
        queue.put_many(range(3), priority=2)
        queue.put_many(range(10, 13), priority=8)
        queue.put("low")
        held = [queue.get("anna", block=0) for _ in range(4)]
        assert held[0].nack("again", delay=30)
        assert held[1].extend(5)
        db.close(drain=0)
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("q", **OPTIONS)
        stats = queue.stats()
        assert (stats.waiting, stats.paused, stats.in_flight) == (3, 1, {"anna": 3})
        # a worker of the same name gets its jobs back, lane by lane
        jobs = []
        for _ in range(5):
            jobs.append(queue.get("anna", block=0))
            if jobs[-1].deliveries > 1:  # it was lost, and runs alone
                assert jobs[-1].ack()
        assert [(job.value, job.deliveries) for job in jobs] == [
            *((12, 2), (0, 2), (1, 1), (2, 1), ("low", 1)),
        ]
        assert queue.get("anna", block=0) is None
        clock.advance(31)
        assert all(job.ack() for job in jobs)
        found = {
            (job.value, job.deliveries)
            for job in iter(lambda: queue.get("ben", block=0), None)
            if job.ack()
        }
        assert found == {(10, 2), (11, 2)}


def test_closing_gives_back_the_jobs_of_lanes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no") as db:
        queue: Any = db.queue("q")
        queue.put_many(range(4), priority=2)
        jobs = queue.consume("anna", batch=4, block=0)
        with next(jobs):
            pass
        held = next(jobs)
        assert db.close(drain=0) == 0  # this thread does not wait for its own job
        del held
    with tidelog.open(root, fsync="no") as db:
        queue = db.queue("q")
        assert len(queue) == 3
        assert [
            (job.value, job.deliveries)
            for job in iter(lambda: queue.get("anna", block=0), None)
            if job.ack()
        ] == [
            *((1, 2), (2, 1), (3, 1)),
        ]


def test_a_drain_waits_for_a_job_of_a_lane(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue: Any = db.queue("q")
        queue.put("a", priority=2)
        took, go = threading.Event(), threading.Event()

        def work() -> None:
            job = queue.get("anna")
            assert job is not None
            with job:
                took.set()
                go.wait(60)

        thread = threading.Thread(target=work)
        thread.start()
        assert took.wait(60)
        closer = threading.Thread(target=lambda: db.close(drain=60))
        closer.start()
        go.set()
        closer.join(60)
        thread.join(60)
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        assert len(db.queue("q")) == 0


def test_a_read_only_store_shows_lanes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        queue: Any = db.queue("q")
        queue.put_many(["a", "b"], priority=2)
        queue.get("anna", block=0).release()
        with tidelog.open(root, read_only=True) as copy:
            seen: Any = copy.queue("q")
            assert seen.stats().by_priority == {2: 2} and len(seen) == 2
            assert [job.value for job in seen.peek()] == ["a", "b"]


# --- asyncio, and bad arguments


def test_priorities_for_asyncio(tmp_path: Path) -> None:
    asyncio.run(_priorities_for_asyncio(tmp_path))


async def _priorities_for_asyncio(tmp_path: Path) -> None:
    async with tidelog.aqueue(tmp_path / "store", "q", fsync="no") as queue:
        waiting = asyncio.create_task(queue.get("anna", block=60))
        await asyncio.sleep(0)
        await queue.put("first", priority=1)
        job = await waiting
        assert job is not None and await job.ack()
        await queue.put("low")
        await queue.put("once", priority=3, dedup_id="x")
        await queue.put_many(["a", "b"], priority=6)
        assert (await queue.stats()).by_priority == {6: 2, 3: 1, 0: 1}
        seen = []
        async for job in queue.consume("anna", block=0):
            async with job:
                seen.append((job.value, job.priority))
        assert seen == [("a", 6), ("b", 6), ("once", 3), ("low", 0)]


@pytest.mark.parametrize("bad", [-1, 10, 1.5, "3", None])
def test_bad_priorities(db: Any, bad: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: queue.put("a", priority=bad),
        lambda: queue.put("a", priority=bad, delay=5),
        lambda: queue.put_many(["a", "b"], priority=bad),
        lambda: queue.new("a", priority=bad),
        lambda: db.schedule("s", queue="q", every=60, priority=bad),
    )
    for call in calls:
        with pytest.raises(tidelog.DataError, match="priority must be an integer from 0 to 9"):
            call()
    assert len(queue) == 0


def test_the_names_of_lanes_are_reserved(db: Any) -> None:
    for name in ("q:priority:1", "q:priority:9"):
        with pytest.raises(tidelog.DataError, match=":priority:1 to :priority:9"):
            db.queue(name)
    db.queue("q:priority:0")
    db.queue("q:priority:10")
