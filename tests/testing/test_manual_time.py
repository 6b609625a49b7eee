"""Stores that go by a clock moved by hand: nothing happens before its time, and everything once it has come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import parked

import tidelog
from tidelog import testing

START = 1_767_225_600_000  # unix ms at which a clock starts that is told nothing
LONG = 60  # seconds of real time after which a test gives up


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as found:
        yield found


@pytest.fixture
def db(clock: testing.Clock, pool: ThreadPoolExecutor) -> Iterator[tidelog.Store]:
    """Closed before the pool waits for its threads, so that a call that still blocks ends."""
    with testing.store(clock) as found:
        yield found


class Looks:
    """Counts how often a blocked caller woke and looked at the clock."""

    def __init__(self, db: Any) -> None:
        self._looked = threading.Semaphore(0)
        core, wake = inside.core(db), inside.core(db).wake

        def counted(waiter: Any) -> None:
            wake(waiter)
            self._looked.release()

        core.wake = counted  # type: ignore[method-assign]

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._looked.acquire(timeout=LONG), "nobody woke"


def start(
    pool: ThreadPoolExecutor, db: tidelog.Store, call: Callable[[], Any], before: int = 0
) -> Future[Any]:
    """Submit a call that will block, and wait until it does."""
    future = pool.submit(call)
    parked(db, before + 1)
    return future


# --- what is stored


def test_ids_follow_the_clock(db: tidelog.Store, clock: testing.Clock) -> None:
    assert db.xadd("s", {"a": 1}) == b"%d-0" % START
    assert db.xadd("s", {"a": 1}) == b"%d-1" % START
    clock.advance(1.5)
    assert db.xadd("s", {"a": 1}) == b"%d-0" % (START + 1500)
    assert db.xadd_many("s", [{"a": 1}])[0] == b"%d-1" % (START + 1500)
    with db.pipeline() as pipe:
        pipe.xadd("s", {"a": 1})
        assert pipe.execute() == [b"%d-2" % (START + 1500)]
    clock.jump(10)
    assert db.xadd("s", {"a": 1}) == b"%d-0" % (START + 11_500)
    assert db.time() == (START // 1000 + 11, 500_000)


@pytest.mark.parametrize("year", [1970, 2000, 2026, 2300])
def test_ids_follow_a_clock_of_any_year(year: int) -> None:
    clock = testing.Clock(datetime(year, 1, 2, tzinfo=UTC))
    with testing.store(clock) as db:
        assert db.xadd("s", {"a": 1}) == b"%d-0" % (clock.time_ns() // 1_000_000)


def test_a_jump_back_never_takes_the_stores_time_back(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    clock.advance(60)
    first = db.xadd("s", {"a": 1})
    clock.jump(-3600)
    assert db.time() == (START // 1000 + 60, 0)
    assert db.xadd("s", {"a": 1}) == b"%d-1" % (START + 60_000)
    assert db.xadd("other", {"a": 1}) == first
    clock.advance(2)  # it goes on from where it was
    assert db.xadd("s", {"a": 1}) == b"%d-0" % (START + 62_000)
    clock.jump(7200)
    assert db.xadd("s", {"a": 1}) == b"%d-0" % (START + 60_000 + 3_602_000)


def test_what_expires_does_so_in_time_though_the_clock_was_set_back(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    db.set("token", "abc", px=10_000)
    clock.jump(-86_400)
    clock.advance(9)
    assert db.get("token") == b"abc"
    clock.advance(1.001)
    assert db.get("token") is None


def test_reopened_under_an_earlier_clock_time_goes_on(tmp_path: Path) -> None:
    clock = testing.Clock()
    clock.advance(60)
    with tidelog.open(tmp_path / "s", clock=clock) as db:
        db.xadd("s", {"a": 1})
    with tidelog.open(tmp_path / "s", clock=testing.Clock()) as db:
        assert db.xadd("other", {"a": 1}) == b"%d-0" % (START + 60_000)


def test_a_store_that_was_rebuilt_goes_by_its_clock_still(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    db.xadd("s", {"a": 1})
    core = inside.core(db)
    core.landing.trouble = "memory may be ahead of the log"
    assert db.xadd("s", {"a": 1}) == b"%d-1" % START
    assert core.reloads == 1
    clock.advance(1)
    assert db.xadd("s", {"a": 1}) == b"%d-0" % (START + 1000)


def test_idle_times_follow_the_clock(db: tidelog.Store, clock: testing.Clock) -> None:
    db.xgroup_create("s", "g", id="0", mkstream=True)
    id = db.xadd("s", {"a": 1})
    db.xreadgroup("g", "anna", {"s": ">"})
    clock.advance(5)
    assert db.xpending_range("s", "g", "-", "+", 1)[0]["time_since_delivered"] == 5000
    assert db.xautoclaim("s", "g", "ben", min_idle_time=5001)[1] == []
    clock.advance(0.001)
    assert db.xautoclaim("s", "g", "ben", min_idle_time=5001)[1] == [(id, {b"a": b"1"})]


# --- expiry


def test_keys_expire_when_their_millisecond_is_over(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    db.set("a", 1, px=1500)
    db.set("b", 1, ex=60)
    clock.advance(1.5)
    assert db.get("a") == b"1" and db.pttl("a") == 0  # as Redis has it
    clock.advance(0.001)
    assert db.get("a") is None and db.exists("a", "b") == 1
    clock.jump(58.5)
    assert db.get("b") is None and db.dbsize() == 0


def test_a_key_that_expired_stays_away_after_a_jump_back(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    db.set("a", 1, px=1000)
    clock.advance(1.001)
    assert db.get("a") is None
    clock.jump(-10)
    assert db.get("a") is None
    db.set("a", 2, px=1000)  # from the store's time, which did not go back
    clock.advance(1)
    assert db.get("a") == b"2"
    clock.advance(0.001)
    assert db.get("a") is None


# --- blocked calls


def test_a_blocked_read_ends_with_its_time_and_not_before(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    looks = Looks(db)
    waiting = start(pool, db, lambda: db.xread({"s": "$"}, block=10_000))
    clock.advance(9.999)
    looks.wait()
    assert not waiting.done() and db.info()["blocked_clients"] == 1
    clock.jump(3600)  # the wall clock is not what it waits for
    looks.wait()
    assert not waiting.done() and db.info()["blocked_clients"] == 1
    clock.advance(0.001)
    assert waiting.result(LONG) == []
    assert db.info()["blocked_clients"] == 0


def test_real_time_ends_no_wait(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    waiting = start(pool, db, lambda: db.xread({"s": "$"}, block=1))
    with pytest.raises(TimeoutError):
        waiting.result(0.05)  # what would be long enough if it went by the system's clock
    clock.advance(0.001)
    assert waiting.result(LONG) == []


def test_an_entry_ends_a_wait_without_the_clock(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    waiting = start(pool, db, lambda: db.xread({"s": "$"}, block=10_000))
    id = db.xadd("s", {"a": 1})
    assert waiting.result(LONG) == [[b"s", [(id, {b"a": b"1"})]]]


def test_each_waits_for_its_own_time(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    def wait(ms: int) -> Callable[[], Any]:
        return lambda: db.xread({"s": "$"}, block=ms)

    waiting = [start(pool, db, wait(1000 * n), n - 1) for n in range(1, 9)]
    for n, future in enumerate(waiting, 1):
        clock.advance(1)
        assert future.result(LONG) == []
        parked(db, 8 - n)
        assert not any(later.done() for later in waiting[n:])


def test_a_wait_for_ever_outlasts_every_clock(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    looks = Looks(db)
    waiting = start(pool, db, lambda: db.xread({"s": "$"}, block=0))
    for _ in range(3):
        clock.advance(10**8)
        looks.wait()
    assert not waiting.done()
    db.xadd("s", {"a": 1})
    assert waiting.result(LONG)


def test_a_blocked_claim_gets_what_has_idled_long_enough_and_not_before(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    db.xgroup_create("s", "g", id="0", mkstream=True)
    id = db.xadd("s", {"a": 1})
    db.xreadgroup("g", "dead", {"s": ">"})
    looks = Looks(db)
    waiting = start(
        pool,
        db,
        lambda: db.xreadgroup("g", "heir", {"s": ">"}, block=0, claim_min_idle_time=30_000),
    )
    clock.advance(29.999)
    looks.wait()
    assert not waiting.done()
    clock.advance(0.001)
    assert waiting.result(LONG) == [[b"s", [(id, {b"a": b"1"}, 30_000, 1)]]]


def test_one_clock_wakes_those_of_all_its_stores(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    with testing.store(clock) as other:
        waiting = [
            start(pool, each, lambda each=each: each.xread({"s": "$"}, block=500))  # type: ignore[misc]
            for each in (db, other)
        ]
        clock.advance(0.5)
        assert [future.result(LONG) for future in waiting] == [[], []]


def test_the_clock_may_be_moved_after_a_store_was_closed(clock: testing.Clock) -> None:
    with testing.store(clock) as db:
        db.set("a", 1)
    clock.advance(1)
    assert db.closed


def test_readers_and_movers_at_once(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    """Short waits over and over, while another thread moves the clock: none of them hangs."""
    over = threading.Event()

    def move() -> None:
        while not over.is_set():
            clock.advance(0.01)

    def read() -> int:
        return sum(db.xread({"s": "$"}, block=5) == [] for _ in range(200))

    mover = pool.submit(move)
    try:
        readers = [pool.submit(read) for _ in range(6)]
        assert [reader.result(LONG * 2) for reader in readers] == [200] * 6
    finally:
        over.set()
    mover.result(LONG)


# --- tasks


async def until_tasks_block(db: tidelog.AsyncStore, count: int) -> None:
    while (await db.info())["blocked_clients"] != count:
        await asyncio.sleep(0)


def test_tasks_wait_for_the_clock_too() -> None:
    async def main() -> None:
        clock = testing.Clock()
        async with testing.astore(clock) as db:
            await db.set("token", 1, px=1500)
            tasks = [
                asyncio.create_task(db.xread({"s": "$"}, block=block)) for block in (1000, 2000)
            ]
            await until_tasks_block(db, 2)
            clock.advance(0.999)
            for _ in range(20):
                await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            clock.advance(0.001)
            assert await asyncio.wait_for(tasks[0], LONG) == []
            assert not tasks[1].done() and await db.get("token") == b"1"
            clock.advance(1)
            assert await asyncio.wait_for(tasks[1], LONG) == []
            assert await db.get("token") is None
            assert await db.xadd("s", {"a": 1}) == b"%d-0" % (START + 2000)

    asyncio.run(main())


def test_a_thread_may_move_the_clock_of_tasks() -> None:
    async def main() -> None:
        clock = testing.Clock()
        async with testing.astore(clock) as db:
            for _ in range(50):
                task = asyncio.create_task(db.xread({"s": "$"}, block=1000))
                await until_tasks_block(db, 1)
                await asyncio.to_thread(clock.advance, 1)
                assert await asyncio.wait_for(task, LONG) == []

    asyncio.run(main())
