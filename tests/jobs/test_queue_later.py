"""Delayed jobs: due in the order of their times, cancelled, moved, expired, and kept by a restart and by a crash."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.until import parked, until

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.work.later import FIRST_SEQ, MOVE_JOBS, SHIFT_MS

RETRY_AFTER = 8.0


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: testing.Clock) -> Iterator[Any]:
    path = tmp_path / "s"
    with tidelog.queue(path, "jobs", clock=clock, retry_after=RETRY_AFTER, fsync="no") as found:
        yield found


def work_off(queue: Any, worker: str = "anna") -> list[Any]:
    """The values of all jobs that are due, done."""
    done = []
    for job in queue.consume(worker, block=0):
        with job:
            done.append(job.value)
    return done


def scheduled(queue: Any) -> list[Any]:
    return [job.value for job in queue.peek(1000, scheduled=True)]


def test_jobs_are_due_in_the_order_of_their_times(queue: Any, clock: testing.Clock) -> None:
    queue.put("late", delay=30)
    queue.put("soon", delay=timedelta(seconds=10))
    queue.put("at", at=clock.now() + timedelta(seconds=20))
    queue.put("now")
    stats = queue.stats()
    assert (stats.depth, stats.waiting, stats.scheduled) == (1, 1, 3)
    assert scheduled(queue) == ["soon", "at", "late"]
    assert work_off(queue) == ["now"]
    clock.advance(9.9)
    assert work_off(queue) == []
    clock.advance(0.2)
    assert work_off(queue) == ["soon"]
    clock.advance(30)
    assert work_off(queue) == ["at", "late"]
    assert queue.stats().scheduled == 0


def test_jobs_due_at_one_time_come_in_the_order_of_their_puts(
    queue: Any, clock: testing.Clock
) -> None:
    for number in range(20):
        queue.put(number, delay=5)
    clock.advance(6)
    assert work_off(queue) == list(range(20))


def test_a_due_job_counts_as_waiting_before_a_worker_asks(queue: Any, clock: testing.Clock) -> None:
    queue.put("a", delay=5)
    queue.put("b", delay=50)
    clock.advance(6)
    stats = queue.stats()
    assert (stats.depth, stats.waiting, stats.scheduled, len(queue)) == (1, 1, 1, 1)
    assert [job.value for job in queue.peek()] == ["a"] and queue.peek()[0].due_at is None
    assert scheduled(queue) == ["b"]


def test_peek_shows_when_a_delayed_job_is_due(queue: Any, clock: testing.Clock) -> None:
    at = clock.now() + timedelta(hours=1)
    id = queue.put({"to": "ann"}, at=at, headers={"trace": "a"})
    (job,) = queue.peek(scheduled=True)
    assert (job.id, job.value, job.headers, job.due_at) == (id, {"to": "ann"}, {"trace": "a"}, at)
    assert job.enqueued_at == clock.now()


def test_the_id_that_put_returned_is_the_origin_of_the_job(
    queue: Any, clock: testing.Clock
) -> None:
    id = queue.put("a", delay=1, headers={"trace": "ü"})
    clock.advance(2)
    job = queue.get("anna", block=0)
    assert (job.origin, job.headers, job.deliveries) == (id, {"trace": "ü"}, 1) and job.id != id
    job.fail("no")
    (dead,) = queue.dead
    queue.dead.redrive()
    assert queue.get("anna", block=0).origin == id, "as of any job that died"
    assert dead.value == "a"


def test_no_id_of_a_delayed_job_is_one_of_a_job_put_at_once(queue: Any) -> None:
    plain = [queue.put(n) for n in range(50)]
    delayed = [queue.put(n, delay=60) for n in range(50)]
    assert len({*plain, *delayed}) == 100, "all of them were put in one millisecond"
    assert all(int(id.partition("-")[2]) >= FIRST_SEQ for id in delayed)


def test_many_at_once(queue: Any, clock: testing.Clock) -> None:
    total = 4 * MOVE_JOBS + 7
    assert queue.put_many(range(total), delay=5) == total
    assert (queue.stats().scheduled, work_off(queue)) == (total, [])
    clock.advance(6)
    assert queue.stats().waiting == total
    done = []
    for job in queue.consume("anna", 100, block=0):
        with job:
            done.append(job.value)
    assert done == list(range(total)) and queue.stats().depth == 0


def test_delayed_jobs_do_not_wait_behind_a_backlog_for_ever(
    queue: Any, clock: testing.Clock
) -> None:
    queue.put("delayed", delay=5)
    queue.put_many(range(10))
    clock.advance(6)
    assert queue.get("anna", block=0).value == 0
    queue.put("after")
    assert work_off(queue, "ben")[-2:] == ["delayed", "after"]


def test_cancel(queue: Any, clock: testing.Clock) -> None:
    first, second = queue.put("a", delay=5), queue.put("b", delay=5)
    now = queue.put("c")
    assert queue.cancel(first) and not queue.cancel(first)
    assert not queue.cancel("1-1")
    clock.advance(6)
    assert work_off(queue) == ["c", "b"]
    assert not queue.cancel(second) and not queue.cancel(now), "they are done"


def test_a_due_job_can_be_cancelled_until_a_worker_asks(queue: Any, clock: testing.Clock) -> None:
    id = queue.put("a", delay=5)
    clock.advance(6)
    assert queue.cancel(id) and work_off(queue) == []


def test_move(queue: Any, clock: testing.Clock) -> None:
    first, second = queue.put("a", delay=5), queue.put("b", delay=50)
    assert queue.move(first, delay=100) and queue.move(second, at=clock.now())
    assert work_off(queue) == ["b"]
    clock.advance(60)
    assert work_off(queue) == []
    assert queue.move(first, delay=1)
    clock.advance(2)
    job = queue.get("anna", block=0)
    assert (job.value, job.origin) == ("a", first)
    assert not queue.move(first, delay=1), "it is delivered"
    assert not queue.move("1-1", delay=1)


@pytest.mark.parametrize("way", ["purge", "DEL"])
def test_purge_deletes_delayed_jobs(queue: Any, clock: testing.Clock, way: str) -> None:
    queue.put_many(range(3), delay=5)
    queue.put("now")
    if way == "purge":
        assert queue.purge() == 4
    else:
        queue.store.delete("jobs:later", "jobs")
    clock.advance(6)
    assert work_off(queue) == [] and queue.stats().scheduled == 0
    queue.put("again", delay=5)
    clock.advance(6)
    assert work_off(queue) == ["again"]


def test_a_job_that_is_too_old_is_dead_as_expired(queue: Any, clock: testing.Clock) -> None:
    queue.put("stale", ttl=5, headers={"trace": "a"})
    queue.put("fresh", ttl=60)
    queue.put("delayed", delay=10, ttl=5)
    clock.advance(6)
    assert work_off(queue) == ["fresh"]
    (dead,) = queue.dead
    assert (dead.value, dead.reason, dead.deliveries) == ("stale", "expired", 0)
    assert dead.headers == {"trace": "a"} and queue.stats().depth == 0
    clock.advance(6)
    assert work_off(queue) == ["delayed"], "its time began when it was due"
    queue.dead.redrive()
    clock.advance(100)
    assert work_off(queue) == ["stale"], "a redriven job does not expire"


def test_many_expired_jobs_do_not_hide_the_next_one(queue: Any, clock: testing.Clock) -> None:
    queue.put_many(range(500), ttl=5)
    clock.advance(6)
    queue.put("fresh")
    for batch in (1, 10, 1000):
        with queue.consume("anna", batch, block=0) as jobs:
            job = next(jobs, None)
        if job is not None:
            break
    assert job is not None and job.value == "fresh"
    assert (queue.dead.count(), queue.stats().depth) == (500, 1)


def test_a_retry_is_expired_too(queue: Any, clock: testing.Clock) -> None:
    queue.put("a", ttl=20)
    queue.get("anna", block=0).nack("no", delay=30)
    clock.advance(31)
    assert work_off(queue) == []
    (dead,) = queue.dead
    assert (dead.reason, dead.deliveries, dead.errors[0].error) == ("expired", 1, "no")


def test_every_group_gets_a_delayed_job(queue: Any, clock: testing.Clock) -> None:
    other = queue.store.queue("jobs", "others", retry_after=RETRY_AFTER)
    other.subscribe()
    queue.put("a", delay=5)
    clock.advance(6)
    assert work_off(queue) == ["a"] and work_off(other) == ["a"]


def test_dedup_ids_of_delayed_jobs_and_of_others_are_one_set(
    queue: Any, clock: testing.Clock
) -> None:
    delayed = queue.put("a", delay=5, dedup_id="x")
    assert queue.put("b", delay=50, dedup_id="x") == delayed
    assert queue.put("c", dedup_id="x") == delayed
    now = queue.put("d", dedup_id="y")
    assert queue.put("e", delay=5, dedup_id="y") == now
    clock.advance(6)
    assert work_off(queue) == ["d", "a"]
    assert queue.put("f", dedup_id="x") == delayed, "remembered after it is done"
    assert work_off(queue) == []


def test_done_and_puts_delayed_jobs(queue: Any, clock: testing.Clock) -> None:
    more = queue.store.queue("more")
    queue.put("a")
    job = queue.get("anna", block=0)
    assert job.done_and(
        more.new(1, delay=5),
        more.new(2, delay=3),
        more.new(3),
        more.new(4, delay=9, dedup_id="x"),
        more.new(5, dedup_id="x"),
        more.new(6, delay=1, ttl=1),
    )
    assert work_off(more) == [3] and scheduled(more) == [6, 2, 1, 4]
    clock.advance(10)
    assert work_off(more) == [2, 1, 4] and [dead.value for dead in more.dead] == [6]


def test_a_bounded_queue_has_room_for_delayed_jobs(tmp_path: Path, clock: testing.Clock) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", max_depth=1, clock=clock, fsync="no") as queue:
        queue.put("a")
        queue.put("b", delay=5, timeout=0)
        queue.put_many(list("cd"), delay=5, timeout=0)
        with pytest.raises(tidelog.QueueFull):
            queue.put("e", timeout=0)
        clock.advance(6)
        assert work_off(queue) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "given",
    [
        {"delay": -1},
        {"delay": math.nan},
        {"delay": math.inf},
        {"delay": 11 * 365 * 86_400},
        {"delay": "5"},
        {"delay": True},
        {"at": 5},
        {"at": datetime(2027, 1, 1)},
        {"at": datetime(2099, 1, 1, tzinfo=UTC)},
        {"at": datetime(2027, 1, 1, tzinfo=UTC), "delay": 1},
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": math.nan},
    ],
)
def test_bad_times_are_refused(queue: Any, given: dict[str, Any]) -> None:
    with pytest.raises(tidelog.DataError):
        queue.put("a", **given)
    with pytest.raises(tidelog.DataError):
        queue.put_many(["a"], **given)
    with pytest.raises(tidelog.DataError):
        queue.new("a", **given)
    assert (queue.stats().scheduled, len(queue)) == (0, 0)


def test_bad_arguments_of_move_and_cancel(queue: Any) -> None:
    id = queue.put("a", delay=5)
    for name in ("no", 5, None):
        with pytest.raises(tidelog.DataError):
            queue.cancel(name)
        with pytest.raises(tidelog.DataError):
            queue.move(name, delay=1)
    for given in ({}, {"delay": 1, "at": datetime.now(UTC)}, {"delay": -1}):
        with pytest.raises(tidelog.DataError):
            queue.move(id, **given)
    assert scheduled(queue) == ["a"]


def test_a_time_in_the_past_means_now(queue: Any, clock: testing.Clock) -> None:
    queue.put("a", at=clock.now() - timedelta(days=400))
    queue.put("b", delay=0)
    assert work_off(queue) == ["a", "b"]


def test_a_delay_of_years(queue: Any, clock: testing.Clock) -> None:
    queue.put("a", delay=timedelta(days=3650))
    clock.advance(3649 * 86_400)
    assert work_off(queue) == []
    clock.advance(2 * 86_400)
    assert work_off(queue) == ["a"]


def test_a_key_of_another_type_is_named(queue: Any) -> None:
    queue.store.set("jobs:later", "a string")
    with pytest.raises(tidelog.ResponseError, match="jobs:later"):
        queue.put("a", delay=5)


# --- waiting workers


@pytest.mark.parametrize("order", [(3, 1), (1, 3)])
def test_a_waiting_worker_wakes_when_a_job_is_due(
    queue: Any, clock: testing.Clock, order: tuple[int, int]
) -> None:
    got: list[Any] = []

    def worker() -> None:
        for job in queue.consume("anna", block=10_000):
            with job:
                got.append(job.value)
            if len(got) == 2:
                return

    thread = threading.Thread(target=worker)
    thread.start()
    parked(queue.store)
    for delay in order:
        queue.put(delay, delay=delay)
    parked(queue.store)
    clock.advance(2)
    until(lambda: got == [1])
    parked(queue.store)
    clock.advance(2)
    thread.join(60)
    assert got == [1, 3]


def test_a_waiting_worker_wakes_by_the_real_clock(tmp_path: Path) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no") as queue:
        queue.put("b", delay=0.3)
        queue.put("a", delay=0.1)
        got = [queue.get("anna", block=60).value for _ in range(2)]  # type: ignore[union-attr]
        assert sorted(got) == ["a", "b"]  # a machine that stalls between the puts turns them round


def test_a_waiting_worker_wakes_when_a_job_is_moved(queue: Any, clock: testing.Clock) -> None:
    id = queue.put("a", delay=1000)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(queue.get("anna", block=10_000).value))
    thread.start()
    parked(queue.store)
    assert queue.move(id, delay=0)
    until(lambda: got == ["a"], "it does not wake")
    thread.join(60)


# --- clocks


def test_a_leap_of_the_wall_clock_shortens_no_delay(queue: Any, clock: testing.Clock) -> None:
    queue.put("delay", delay=100)
    queue.put("at", at=clock.now() + timedelta(seconds=100))
    assert work_off(queue) == []
    clock.jump(3600)
    clock.advance(RETRY_AFTER + 1)  # workers notice a leap when they look again
    assert work_off(queue) == ["at"] and scheduled(queue) == ["delay"]
    queue.put("new", delay=10)
    clock.advance(11)
    assert work_off(queue) == ["new"]
    clock.advance(100 - (RETRY_AFTER + 1) - 11 + 0.1)
    assert work_off(queue) == ["delay"]


def test_a_clock_that_is_set_back_lengthens_no_delay(queue: Any, clock: testing.Clock) -> None:
    queue.put("a", delay=100)
    clock.jump(-7200)
    queue.put("b", delay=50)
    clock.advance(60)
    assert work_off(queue) == ["b"]
    clock.advance(60)
    assert work_off(queue) == ["a"]


def test_a_clock_that_is_set_back_makes_no_job_with_a_time_due_early(
    queue: Any, clock: testing.Clock
) -> None:
    queue.put("a", at=clock.now() + timedelta(seconds=100))
    clock.jump(-7200)
    queue.put("b", at=clock.now() + timedelta(seconds=50))
    queue.put("c", delay=60)
    due = [(job.value, job.due_at - clock.now()) for job in queue.peek(10, scheduled=True)]
    assert sorted(due) == [
        ("a", timedelta(seconds=7300)),
        ("b", timedelta(seconds=50)),
        ("c", timedelta(seconds=60)),
    ]
    clock.advance(51)
    assert work_off(queue) == ["b"]
    clock.advance(10)
    assert work_off(queue) == ["c"] and scheduled(queue) == ["a"]
    clock.jump(7200)
    clock.advance(40)
    assert work_off(queue) == ["a"]


def test_a_clock_of_the_seventies_is_refused(tmp_path: Path) -> None:
    clock = testing.Clock(datetime(1975, 1, 1, tzinfo=UTC))
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock, fsync="no") as queue:
        with pytest.raises(tidelog.DataError, match="1986"):
            queue.put("a", delay=5)


# --- what is stored


def test_other_clients_see_plain_streams_and_groups(queue: Any, clock: testing.Clock) -> None:
    db = queue.store
    id = queue.put("a", delay=100)
    assert db.xrange("jobs:later") == [(id.encode(), {b"value": b'"a"'})]
    (pending,) = db.xpending_range("jobs:later", "due", "-", "+", 10)
    idle = pending["time_since_delivered"]
    due = clock.now().timestamp() * 1000 - idle + SHIFT_MS
    assert due == clock.now().timestamp() * 1000 + 100_000
    clock.advance(101)
    assert work_off(queue) == ["a"]
    assert db.xlen("jobs:later") == 0 and db.xpending("jobs:later", "due")["pending"] == 0


def test_an_entry_that_another_client_deleted_is_forgotten(
    queue: Any, clock: testing.Clock
) -> None:
    first, _ = queue.put("a", delay=5), queue.put("b", delay=5)
    queue.store.xdel("jobs:later", first)
    clock.advance(6)
    assert work_off(queue) == ["b"] and queue.stats().scheduled == 0


def test_the_helper_stream_is_no_queue(queue: Any) -> None:
    queue.put("a", delay=5)
    with pytest.raises(tidelog.DataError, match=":later"):
        queue.store.queue("jobs:later")


def ends_of_life(db: Any) -> None:
    """Three delayed jobs, one of them moved and one cancelled."""
    queue = db.queue("jobs")
    ids = [queue.put(n, delay=n) for n in (30, 10, 20)]
    assert queue.cancel(ids[2]) and queue.move(ids[1], delay=40)


def next_life(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("jobs")
    clock.advance(31)
    assert work_off(queue) == [30] and scheduled(queue) == [10]
    clock.advance(20)
    assert work_off(queue) == [10]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_delayed_jobs_outlive_the_store(
    tmp_path: Path, clock: testing.Clock, checkpoint: bool
) -> None:
    with tidelog.open(tmp_path / "s", clock=clock) as db:
        ends_of_life(db)
        if checkpoint:
            db.checkpoint()
    with tidelog.open(tmp_path / "s", clock=clock) as again:
        next_life(again, clock)


@pytest.mark.parametrize("power", [False, True])
def test_delayed_jobs_outlive_a_crash(clock: testing.Clock, power: bool) -> None:
    disk = SimulatedDisk(1)
    with tidelog.open(Path("/store"), disk=disk, clock=clock) as db:
        ends_of_life(db)
        left = disk.power_loss(random.Random(1)) if power else disk.killed()
    with tidelog.open(Path("/store"), disk=left, clock=clock) as again:
        next_life(again, clock)


def test_with_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        clock = testing.Clock()
        async with tidelog.aqueue(tmp_path / "s", "jobs", clock=clock) as queue:
            first = await queue.put("a", delay=5)
            second = await queue.put("b", delay=6, dedup_id="x")
            assert await queue.put("c", dedup_id="x") == second
            await queue.put_many(list("de"), delay=7, ttl=60)
            assert (await queue.stats()).scheduled == 4
            assert [j.value for j in await queue.peek(scheduled=True)] == ["a", "b", "d", "e"]
            assert await queue.cancel(first) and await queue.move(second, delay=8)
            clock.advance(9)
            got = []
            async for job in queue.consume("anna", block=0):
                async with job:
                    got.append(job.value)
            assert got == ["d", "e", "b"]

    asyncio.run(main())
