"""Keys of jobs, and the limit of jobs in progress for each key."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.until import parked

import tidelog
from tidelog import testing

OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 3}
ONE: dict[str, Any] = {**OPTIONS, "concurrency_per_key": 1}


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Any:
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        yield db


def taken(queue: Any, count: int = 100, worker: str = "anna") -> list[Any]:
    """At most `count` jobs that a worker gets now, one by one. It holds them."""
    jobs: list[Any] = []
    while len(jobs) < count and (job := queue.get(worker, block=0)) is not None:
        jobs.append(job)
    return jobs


def values(jobs: list[Any]) -> list[Any]:
    return [job.value for job in jobs]


# --- without the limit


def test_a_key_is_shown(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **OPTIONS)
    queue.put("a", key="k", headers={"h": "1"})
    queue.put("b", key="k", priority=2)
    queue.put("c")
    queue.put_many(["d", "e"], key="ü")
    queue.put("f", key="k", delay=5)
    assert [job.key for job in queue.peek()] == ["k", "k", None, "ü", "ü"]
    assert [job.key for job in queue.peek(scheduled=True)] == ["k"]
    clock.advance(6)
    jobs = taken(queue)
    assert {job.value: job.key for job in jobs} == {
        **{"a": "k", "b": "k", "c": None, "d": "ü", "e": "ü", "f": "k"}
    }
    assert jobs[0].fail("no") and queue.dead.list()[0].key == "k"
    assert queue.dead.redrive() == 1 and queue.get("anna", block=0).key == "k"


@pytest.mark.parametrize("bad", ["", 5, b"k", "\ud800"])
def test_bad_keys(db: Any, bad: Any) -> None:
    queue = db.queue("q", **OPTIONS)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: queue.put("a", key=bad),
        lambda: queue.put("a", key=bad, delay=5),
        lambda: queue.put_many(["a"], key=bad),
        lambda: queue.put_many(["a"], key=bad, priority=1),
        lambda: queue.new("a", key=bad),
    )
    for call in calls:
        with pytest.raises(tidelog.DataError, match="key must be"):
            call()
    assert len(queue) == 0


@pytest.mark.parametrize("bad", [0, True, 1.5, "1"])
def test_bad_limits(db: Any, bad: Any) -> None:
    with pytest.raises(tidelog.DataError, match="concurrency_per_key"):
        db.queue("q", concurrency_per_key=bad)


# --- the limit


def test_a_key_has_one_job_in_progress(db: Any) -> None:
    queue = db.queue("q", **ONE)
    for n, key in enumerate("kkklk-"):
        queue.put(n, key=None if key == "-" else key)
    jobs = taken(queue)
    assert values(jobs) == [0, 3, 5]
    assert queue.stats().waiting == 3 and queue.stats().depth == 6
    assert values(queue.peek()) == [1, 2, 4]
    assert jobs[1].ack() and taken(queue) == []
    assert jobs[0].ack() and values(taken(queue, 1, "ben")) == [1]


def test_two_jobs_of_a_key(db: Any) -> None:
    queue = db.queue("q", concurrency_per_key=2, **OPTIONS)
    queue.put_many(range(5), key="k")
    queue.put_many(range(5, 7), key="l")
    jobs = taken(queue)
    assert values(jobs) == [0, 1, 5, 6]
    assert jobs[1].ack() and values(taken(queue)) == [2]


def test_a_batch_has_one_job_of_each_key(db: Any) -> None:
    queue = db.queue("q", **ONE)
    for n in range(30):
        queue.put(n, key="klm"[n % 3])
    seen: list[int] = []
    with queue.consume("anna", batch=100, block=0) as jobs:
        for job in jobs:
            with job:
                seen.append(job.value)
                assert sum(queue.stats().in_flight.values()) <= 3
    assert sorted(seen) == list(range(30)) and len(queue) == 0
    for key in range(3):
        assert [n for n in seen if n % 3 == key] == list(range(key, 30, 3))


def test_a_pause_keeps_the_order(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(["a", "b"], key="k")
    (job,) = taken(queue)
    assert job.nack("again", delay=3)
    assert taken(queue) == []
    clock.advance(4)
    (job,) = taken(queue)
    assert (job.value, job.deliveries) == ("a", 2)
    assert job.fail("no")
    assert values(taken(queue)) == ["b"]


def test_a_released_job_comes_first_again(db: Any) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(["a", "b"], key="k")
    (job,) = taken(queue)
    assert job.release()
    (job,) = taken(queue)
    assert (job.value, job.deliveries) == ("a", 1)
    assert job.ack() and values(taken(queue)) == ["b"]


def test_jobs_that_were_fetched_ahead_leave_their_keys(db: Any) -> None:
    queue = db.queue("q", **ONE)
    for n in range(6):
        queue.put(n, key="kl"[n % 2])
    with queue.consume("anna", batch=5, block=0) as jobs:
        first = next(jobs)
        assert first.value == 0
    held = taken(queue, worker="ben")
    assert values(held) == [1]  # k is still busy
    assert first.ack() and values(taken(queue, worker="ben")) == [2]


def test_a_job_that_goes_back_is_not_overtaken(db: Any) -> None:
    queue = db.queue("q", **ONE)
    queue.put("x")
    queue.put("a", key="k")
    jobs = queue.consume("anna", batch=2, block=0)
    assert next(jobs).value == "x"
    del jobs  # "a" goes back in the unit of the next fetch, which finds "b", too
    gc.collect()
    queue.put("b", key="k")
    assert values(taken(queue, worker="ben")) == ["a"]


def test_a_job_of_a_dead_worker_keeps_its_key(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(["a", "b"], key="k")
    queue.get("anna", block=0)  # dropped
    assert taken(queue) == []
    clock.advance(20)
    jobs = taken(queue)
    assert [(job.value, job.deliveries) for job in jobs] == [("a", 2)]


def test_a_job_that_dies_or_expires_frees_its_key(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **{**ONE, "max_deliveries": 1})
    queue.put_many(["a", "b"], key="k", ttl=30)
    queue.put("c", key="k")
    queue.get("anna", block=0)  # dropped; it becomes a dead job
    assert taken(queue) == []
    clock.advance(20)
    assert values(taken(queue, worker="ben")) == ["b"]
    assert taken(queue) == []
    clock.advance(20)
    assert values(taken(queue, worker="ben")) == ["c"]
    assert [dead.value for dead in queue.dead] == ["a", "b"]


def test_jobs_expire_while_they_wait_for_their_key(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", **ONE)
    queue.put("a", key="k")
    queue.put_many(range(250), key="k", ttl=5)
    queue.put("b", key="k")
    (job,) = taken(queue)
    clock.advance(6)
    assert job.ack() and values(taken(queue)) == ["b"]
    assert len(queue.dead) == 250


@pytest.mark.parametrize("end", ["xack", "xdel", "xclaim"])
def test_another_client_is_seen(db: Any, clock: testing.Clock, end: str) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(range(3), key="k")
    (job,) = taken(queue)
    if end == "xack":
        assert db.xack("q", "workers", job.id) == 1
        clock.advance(1)
        assert values(taken(queue)) == [1]
    elif end == "xdel":
        aside = queue.peek()[0].id
        assert db.xdel("q", aside) == 1
        assert job.ack() and values(taken(queue)) == [2]
    else:
        aside = queue.peek()[0].id
        db.xclaim("q", "workers", "thief", 0, [aside])
        assert job.ack() and taken(queue) == []
        assert db.xack("q", "workers", aside) == 1
        clock.advance(1)
        assert values(taken(queue)) == [2]


@pytest.mark.parametrize("end", ["ack", "fail", "release", "done_and", "batch", "purge"])
@pytest.mark.parametrize("priority", [0, 4])
def test_the_end_of_a_job_wakes_a_waiting_worker(tmp_path: Path, end: str, priority: int) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue: Any = db.queue("q", concurrency_per_key=1, retry_after=3600)
        queue.put("a", key="k", priority=priority)
        if end == "batch":
            jobs = queue.consume("anna", batch=2, block=0)
            job = next(jobs)
        else:
            job = queue.get("anna")
        if end == "purge":
            assert job.nack("later", delay=3600)
        else:
            queue.put("b", key="k", priority=priority)
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
        thread.start()
        parked(db)
        if end == "batch":
            with job:
                pass
            jobs.close()
        elif end == "purge":
            assert queue.purge() == 1
            queue.put("b", key="k", priority=priority)
        else:
            assert getattr(job, end)()
        thread.join(60)
        assert got[0].value == ("a" if end == "release" else "b")


def test_an_end_by_another_client_wakes_a_waiting_worker(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db:
        queue: Any = db.queue("q", concurrency_per_key=1)
        queue.put_many(["a", "b"], key="k")
        job = queue.get("anna")
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(queue.get("ben", block=60)))
        thread.start()
        parked(db)
        db.xack("q", "workers", job.id)
        thread.join(60)
        assert got[0].value == "b"


def test_many_jobs_of_a_busy_key_are_passed(db: Any) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(range(5_000), key="busy")
    queue.put("last", key="other")
    queue.put("plain")
    jobs = taken(queue)
    assert values(jobs) == [0, "last", "plain"]
    assert jobs[0].ack() and values(taken(queue)) == [1]
    assert queue.stats().waiting == 4_998


def test_higher_priorities_of_a_key_come_first(db: Any) -> None:
    queue = db.queue("q", **ONE)
    queue.put_many(["a", "b"], key="k")
    (job,) = taken(queue)
    queue.put_many(["c", "d"], key="k", priority=5)
    assert taken(queue) == []
    order = []
    while job is not None:
        order.append(job.value)
        assert job.ack()
        job = queue.get("anna", block=0)
    assert order == ["a", "c", "d", "b"]


def test_keys_and_other_limits(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("q", concurrency=2, rate="3/m", **ONE)
    for n, key in enumerate("kklmn"):
        queue.put(n, key=key)
    jobs = taken(queue)
    assert values(jobs) == [0, 2]
    assert jobs[0].ack()
    (third,) = taken(queue)
    assert third.value == 1
    assert jobs[1].ack() and taken(queue) == []  # the rate
    clock.advance(64)
    assert values(taken(queue)) == [3]


def test_groups_have_keys_of_their_own(db: Any) -> None:
    one, two = db.queue("q", "one", **ONE), db.queue("q", "two", **ONE)
    one.subscribe()
    two.subscribe()
    one.put_many(range(2), key="k")
    (first,) = taken(one)
    (second,) = taken(two)
    assert first.ack() and values(taken(one)) == [1] and taken(two) == []
    assert second.ack() and values(taken(two)) == [1]


def test_workers_with_other_limits(db: Any) -> None:
    one, two = db.queue("q", **ONE), db.queue("q", concurrency_per_key=2, **OPTIONS)
    free = db.queue("q", **OPTIONS)
    one.put_many(range(8), key="k")
    assert values(taken(one)) == [0] and values(taken(two)) == [1] and taken(one) == []
    (third,) = taken(free, 1)
    assert third.value == 2  # a worker without the option has no limit
    assert values(taken(free)) == [3, 4, 5, 6, 7]
    assert third.ack() and taken(one) == taken(two) == []


def test_a_worker_that_comes_later_with_the_option(db: Any) -> None:
    free, one = db.queue("q", **OPTIONS), db.queue("q", **ONE)
    free.put_many(range(4), key="k")
    first, second, third = taken(free, 3)
    assert taken(one) == []
    assert third.release() and first.ack() and taken(one) == []
    assert second.ack() and values(taken(one)) == [2]


def test_the_limit_survives_a_restart(tmp_path: Path, clock: testing.Clock) -> None:
    root = tmp_path / "store"
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue: Any = db.queue("q", **ONE)
        for n in range(8):
            queue.put(n, key="kl"[n % 2], priority=n % 4 // 2)
        held = taken(queue)
        assert values(held) == [2, 3]
        assert held[0].nack("again", delay=30)
        db.close(drain=0)
    with tidelog.open(root, fsync="no", clock=clock) as db:
        queue = db.queue("q", **ONE)
        assert taken(queue, worker="ben") == []
        clock.advance(9)
        jobs = taken(queue, worker="ben")
        assert [(job.value, job.deliveries) for job in jobs] == [(3, 2)]
        assert jobs[0].ack()
        (last,) = taken(queue, worker="ben")
        assert last.value == 7 and last.ack()
        clock.advance(31)
        jobs = taken(queue, worker="ben")
        assert [(job.value, job.deliveries) for job in jobs] == [(2, 2), (1, 1)]
        assert jobs[0].ack()
        (last,) = taken(queue, worker="ben")
        assert last.value == 6
        assert queue.purge() == 3 and last.ack() and jobs[1].ack() and len(queue) == 0


def test_a_checkpoint_and_an_export_show_what_is_set_aside(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        queue: Any = db.queue("q", **ONE)
        queue.put_many(range(300), key="k")
        assert len(taken(queue, 2)) == 1
        digest = db.digest()
        db.checkpoint()
        db.close(drain=0)
    with tidelog.open(root) as db:
        assert db.digest() == digest
        rows = db.xpending_range("q", "workers", "-", "+", 1000)
        assert Counter((row["consumer"], row["times_delivered"]) for row in rows) == {
            **{(b"anna", 1): 1, (b"", 0): 299}
        }


def test_random_work(db: Any, clock: testing.Clock) -> None:
    """Workers, keys and priorities at random: never two of a key, and each key in order within a priority."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    queue = db.queue("q", **{**ONE, "max_deliveries": 1000})
    held: list[Any] = []
    done: list[Any] = []
    number = 0
    for _ in range(1_500):
        way = dice.random()
        if way < 0.35:
            number += 1
            queue.put(number, key=dice.choice((None, *"klmn")), priority=dice.choice((0, 0, 1, 9)))
        elif way < 0.65:
            job = queue.get(dice.choice(("anna", "ben")), block=0)
            if job is not None:
                assert job.key is None or all(other.key != job.key for other in held), seed
                held.append(job)
        elif held:
            job = held.pop(dice.randrange(len(held)))
            end = dice.random()
            if end < 0.6:
                assert job.ack()
                done.append(job)
            elif end < 0.8:
                assert job.nack("again", delay=dice.choice((0, 1.0)))
            else:
                assert job.release()
        clock.advance(dice.choice((0.0, 0.1)))
    clock.advance(5)
    held.clear()
    job = None  # or the last one would be held on
    clock.advance(20)
    while (job := queue.get("anna", block=0)) is not None:
        assert job.ack()
        done.append(job)
    assert sorted(values(done)) == list(range(1, number + 1)), seed
    order: dict[Any, int] = {}
    for job in done:
        if job.key is not None:
            assert order.get((job.key, job.priority), 0) < job.value, seed
            order[job.key, job.priority] = job.value


def test_keys_for_asyncio(tmp_path: Path) -> None:
    asyncio.run(_keys_for_asyncio(tmp_path))


async def _keys_for_asyncio(tmp_path: Path) -> None:
    async with tidelog.aqueue(tmp_path / "store", "q", fsync="no", concurrency_per_key=1) as queue:
        await queue.put_many(["a", "b"], key="k")
        await queue.put("c", key="k", dedup_id="x")
        job = await queue.get("anna")
        assert job is not None and job.key == "k"
        waiting = asyncio.create_task(queue.get("ben", block=60))
        await asyncio.sleep(0)
        assert await job.ack()
        following = await waiting
        assert following is not None and following.value == "b"
        assert await queue.get("ben", block=0) is None


def test_keys_in_a_test_of_ones_own() -> None:
    with testing.queue("q", concurrency_per_key=1) as queue:
        queue.put_many(["a", "b"], key="k")
        assert len(taken(queue)) == 1
