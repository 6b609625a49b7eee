"""Delayed jobs in the queue of a shared store, beside the embedded queue of the same store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.client.test_shared_queue import OPTIONS, Two, take, two

import tidelog

__all__ = ["two"]


def test_delayed_jobs_are_shown_with_their_times(two: Two) -> None:
    two.local.put("later", delay=5)
    (job,) = two.one.peek(scheduled=True)
    assert job == two.local.peek(scheduled=True)[0]
    assert job.value == "later" and two.one.peek() == []
    two.clock.advance(6)
    assert two.one.peek(scheduled=True) == []
    assert [job.value for job in two.one.peek()] == ["later"]


def test_a_job_is_put_for_later_cancelled_and_moved(two: Two) -> None:
    clock = two.clock
    one = two.one.put("one", delay=5, headers={"h": "x"})
    two.one.put("two", at=clock.now() + timedelta(seconds=3), dedup_id="d")
    assert two.one.put_many(["a", "b"], delay=timedelta(seconds=9)) == 2
    gone = two.one.put("gone", delay=5)
    assert two.two.cancel(gone) and not two.two.cancel(gone)
    assert two.two.move(one, delay=1) and not two.one.move(gone, delay=1)
    assert two.one.move(one, at=clock.now() + timedelta(seconds=4))
    assert two.one.stats().scheduled == 4
    clock.advance(10)
    got = [take(two.two) for _ in range(4)]
    assert [job.value for job in got] == ["two", "one", "a", "b"]
    assert got[1].origin == one and got[1].headers == {"h": "x"}


def test_a_job_expires(two: Two) -> None:
    two.one.put("a", ttl=1)
    two.one.put_many(["b"], ttl=timedelta(seconds=1), delay=1)
    two.clock.advance(3)
    assert two.two.get(block=0) is None
    assert [job.reason for job in two.one.dead] == ["expired"] * 2


def test_a_finished_job_puts_a_delayed_one(two: Two) -> None:
    two.one.put("first")
    assert take(two.one).done_and(two.one.new("next", delay=5))
    assert two.one.get(block=0) is None
    two.clock.advance(6)
    assert take(two.two).value == "next"


def test_schedules(two: Two) -> None:
    shared, local = two.one.store, two.bench.db
    made = shared.schedule("poll", queue="q", every=60, value={"n": 1})
    assert made == shared.schedule("poll", queue="q", every=60, value={"n": 1})
    nightly = shared.schedule("nightly", "0 3 * * *", queue="q", tz="Europe/Berlin", catch_up="all")
    assert shared.schedules.list() == local.schedules.list() == [nightly, made]
    assert two.one.get(block=0) is None
    two.clock.advance(61)
    assert take(two.one).value == {"n": 1}
    assert shared.schedules.pause("poll") and not shared.schedules.pause("none")
    assert local.schedules.list()[1].paused
    assert shared.schedules.resume("poll") and not local.schedules.list()[1].paused
    assert shared.schedules.remove("poll") and not shared.schedules.remove("poll")


@pytest.mark.parametrize(
    "call",
    [
        lambda two: two.one.put("x", delay=-1),
        lambda two: two.one.put("x", delay=1, at=two.clock.now()),
        lambda two: two.one.put("x", at=datetime(2030, 1, 1)),
        lambda two: two.one.put_many(["x"], ttl=0),
        lambda two: two.one.move("1-1"),
        lambda two: two.one.move("x", delay=1),
        lambda two: two.one.cancel("x"),
        lambda two: two.one.store.schedule("s", queue="q"),
        lambda two: two.one.store.schedule("s", "x", queue="q"),
        lambda two: two.one.store.schedule("s", "0 3 * * *", queue="q", tz="Nowhere"),
        lambda two: two.one.store.schedule("s", queue="q", every=0.01),
        lambda two: two.one.store.schedule("", queue="q", every=5),
        lambda two: two.one.store.schedule("s", queue="q", every=5, catch_up="some"),
        lambda two: two.one.store.schedules.pause(""),
    ],
)
def test_bad_arguments(two: Two, call: Callable[[Two], Any]) -> None:
    with pytest.raises(tidelog.DataError):
        call(two)
    assert two.bench.db.keys("*") == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cron": 5},
        {"cron": "x"},
        {"cron": "* * * * *", "tz": 5},
        {"cron": "* * * * *", "tz": "Nowhere"},
        {"every": 5, "tz": "UTC"},
        {"every": 0.01},
        {"every": "x"},
        {"every": 5, "catch_up": "ONE"},
        {"every": 5, "priority": 10},
        {"every": 5, "name": ""},
        {"every": 5, "value": {1, 2}},
    ],
    ids=str,
)
def test_both_faces_refuse_a_schedule_with_the_same_words(two: Two, given: dict[str, Any]) -> None:
    told = []
    for store in (two.one.store, two.bench.db):
        with pytest.raises(tidelog.TidelogError) as caught:
            store.schedule(**{"name": "s", "queue": "q", **given})
        told.append((caught.type, str(caught.value)))
    assert told[0] == told[1]
    assert two.bench.db.keys("*") == []


def test_the_faces_for_asyncio(two: Two) -> None:
    async def work() -> None:
        async with await tidelog.aconnect(two.bench.root) as db:
            queue = db.queue("q", **OPTIONS)
            id = await queue.put("v", delay=5)
            assert await queue.move(id, delay=7)
            assert [job.id for job in await queue.peek(scheduled=True)] == [id]
            assert await queue.cancel(id)
            assert await queue.put_many(["x"], delay=5) == 1
            made = await db.schedule("poll", queue="q", every=60)
            assert await db.schedules.list() == [made]
            assert await db.schedules.pause("poll") and await db.schedules.resume("poll")
            assert await db.schedules.remove("poll")

    asyncio.run(work())
