"""Blocking reads: threads and tasks wait without spinning, in order, and lose nothing when they leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import parked

import tidelog
from tidelog.disk.real import RealFile
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.waiting import Waiting
from tidelog.store.commit.callers import ThreadCaller
from tidelog.testing import Clock
from tidelog.testing import store as temporary_store

READ = b"XREADGROUP GROUP g c COUNT 10 BLOCK 500 STREAMS s >".split()
# Changes that may have happened since a consumer waited for the last time.
SINCE = [
    "",
    "XADD s * f v",
    "XACK s g 1-1",
    "XDEL s 1-1",
    "DEL s",
    "SET s string",
    "XGROUP DESTROY s g",
    "XGROUP DELCONSUMER s g c",
    "XGROUP CREATECONSUMER s g d",
    "XGROUP SETID s g 0",
    "PEXPIRE s 5",
    "PEXPIRE s 50000",
    "SWAPDB 0 1",
]


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("seconds", [0, 0.002, 1])
@pytest.mark.parametrize("kind", ["COUNT 10", "COUNT 0", "NOACK"])
def test_who_waits_again_waits_as_one_who_is_decided_again(
    since: str, seconds: float, kind: str
) -> None:
    read = [word for word in READ if word not in (b"COUNT", b"10")]
    read[4:4] = kind.encode().split()
    clock, outcomes = Clock(), []
    with temporary_store(clock=clock) as one, temporary_store(clock=clock) as other:
        clock.advance(1)
        waiters = []
        for db in one, other:
            core = inside.core(db)
            core.command(0, b"XGROUP CREATE s g 0 MKSTREAM".split())
            waiter, _ = core.command(0, read, ThreadCaller)
            core.command(0, b"XADD s 1-1 f v".split())
            assert waiter.owner.done
            core.command(0, since.encode().split() or [b"DBSIZE"])
            waiters.append(waiter)
        clock.advance(seconds)
        for short, db, waiter in zip((False, True), (one, other), waiters):
            core = inside.core(db)
            spared = short and core.read_again(waiter)
            assert spared or not short or since or kind != "COUNT 10"
            if not spared:
                core.command(0, read, ThreadCaller, True, waiter)
            state = core.state
            stream = state.databases[0].keys.get(b"s")
            seen = None
            if stream is not None and not isinstance(stream, bytes):
                seen = [
                    (name, each.seen_time, each.active_time)
                    for group in stream.groups.values()
                    for name, each in group.consumers.items()
                ]
            outcomes.append(
                (
                    [w is waiter for w in core.waiting.waiters()],
                    [w.deadline for w in core.waiting.waiters()],
                    (waiter.owner.done, waiter.owner.answer is None, waiter.owner.gone),
                    dict(state.databases[0].keys.accessed),
                    digest(state),
                    core.now,
                    core.log.next_lsn,
                    seen,
                )
            )
            core.waiting.remove(waiter)
    assert outcomes[0] == outcomes[1]


def test_who_was_signalled_before_an_interrupt_is_served_though_the_next_call_waits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strikes(*given: object) -> None:
        raise KeyboardInterrupt

    with temporary_store() as db:
        core = inside.core(db)
        waiters = []
        for key in ("s", "t"):
            db.xgroup_create(key, "g", mkstream=True)
            read = f"XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS {key} >".encode().split()
            waiters.append(core.command(0, read, ThreadCaller)[0])
        first, second = waiters
        db.xadd("t", {"n": 1})
        assert second.owner.done and not first.owner.done
        with monkeypatch.context() as patch:
            patch.setattr(Waiting, "visits", strikes)
            patch.setattr("tidelog.store.commit.blocked.Waits.takers", lambda *given: None)
            with pytest.raises(KeyboardInterrupt):
                db.xadd("s", {"n": 1})
        if not core.read_again(second):
            core.command(0, read, ThreadCaller, True, second)
        assert first.owner.done


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as found:
        yield found


def start(pool: ThreadPoolExecutor, db: Any, call: Callable[[], Any], before: int) -> Future[Any]:
    """Submit a call that will block, and wait until it does."""
    future = pool.submit(call)
    parked(db, before + 1)
    return future


def consumers_wait(
    pool: ThreadPoolExecutor, db: Any, names: Sequence[str], key: str = "s"
) -> list[Future[Any]]:
    """Each of them waits for a new entry of group g, one after the other."""
    before = len(inside.waiters(db))
    return [
        start(pool, db, partial(db.xreadgroup, "g", name, {key: ">"}, block=60_000), number)
        for number, name in enumerate(names, before)
    ]


def test_a_group_serves_its_waiters_first_come_first_served(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    waiting = [
        start(
            pool,
            db,
            lambda n=number: db.xreadgroup("g", f"c{n}", {"s": ">"}, count=1, block=60_000),  # type: ignore[misc]
            number,
        )
        for number in range(5)
    ]
    for number in range(5):
        db.xadd("s", {"n": number})
        ((_, entries),) = waiting[number].result(60)
        assert [fields for _, fields in entries] == [{b"n": b"%d" % number}]
        parked(db, 4 - number)
    assert db.xpending("s", "g")["pending"] == 5


def test_those_who_are_passed_over_are_seen_and_keep_their_order(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    waiting = consumers_wait(pool, db, ["c0", "c1", "c2", "c3"])
    consumers = inside.databases(db)[0].keys[b"s"].groups[b"g"].consumers.values()  # type: ignore[union-attr]
    before = max(each.seen_time for each in consumers)
    time.sleep(0.01)
    db.xadd("s", {"n": 0})
    waiting[0].result(60)
    (seen,) = {each.seen_time for each in consumers}
    assert seen > before
    for number in (1, 2, 3):
        db.xadd("s", {"n": number})
        assert waiting[number].result(60)[0][1][0][1] == {b"n": b"%d" % number}


def test_damage_met_while_looking_who_can_be_passed_over_is_not_the_writers_trouble(
    db: tidelog.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise CorruptBlock("a page")

    db.xgroup_create("s", "g", mkstream=True)
    served = consumers_wait(pool, db, ["c", "c"])
    monkeypatch.setattr("tidelog.store.commit.blocked.nothing_new", broken)
    for number in range(2):
        db.xadd("s", {"n": number})
        assert len(served[number].result(60)[0][1]) == 1


def test_a_consumer_who_waits_and_was_removed_is_one_again_when_its_turn_comes(
    pool: ThreadPoolExecutor,
) -> None:
    """Also if all who wait were seen in the same millisecond."""
    with temporary_store(Clock()) as db:
        db.xgroup_create("s", "g", mkstream=True)
        waiting = consumers_wait(pool, db, ["c0", "c1", "c2"])
        db.xadd("s", {"n": 0})
        waiting[0].result(60)
        db.xgroup_delconsumer("s", "g", "c2")
        db.xadd("s", {"n": 1})
        waiting[1].result(60)
        assert [each["name"] for each in db.xinfo_consumers("s", "g")] == [b"c0", b"c1", b"c2"]
        db.xadd("s", {"n": 2})
        waiting[2].result(60)


def test_who_waits_at_a_key_that_another_group_came_to_is_asked(pool: ThreadPoolExecutor) -> None:
    """Also if all who waited where that group was were seen in the same millisecond."""
    with temporary_store(Clock()) as db:
        for key, names in (("a", ["a1", "a2"]), ("b", ["b1", "b2", "b3"])):
            db.xgroup_create(key, "g", mkstream=True)
            consumers_wait(pool, db, names, key)
        db.xadd("a", {"n": 0})
        parked(db, 4)
        db.rename("a", "b")
        found = [each["name"] for each in db.xinfo_consumers("b", "g")]
        assert found == [b"a1", b"a2", b"b1", b"b2", b"b3"]
        db.xadd("b", {"n": 1})
        db.delete("b")


def test_one_unit_of_several_entries_serves_several(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    waiting = [
        start(
            pool,
            db,
            lambda: db.xreadgroup("g", "c", {"s": ">"}, count=2, block=60_000),
            number,
        )
        for number in range(3)
    ]
    db.xadd_many("s", [{"n": n} for n in range(3)])
    assert [len(waiting[0].result(60)[0][1]), len(waiting[1].result(60)[0][1])] == [2, 1]
    assert not waiting[2].done()
    pipe = db.pipeline()
    pipe.xadd("s", {"n": 4})
    pipe.execute()
    assert len(waiting[2].result(60)[0][1]) == 1


def test_readers_without_group_all_get_it(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    waiting = [
        start(pool, db, lambda: db.xread({"s": "$", "t": "$"}, block=60_000), number)
        for number in range(3)
    ]
    id = db.xadd("t", {"a": 1})
    for future in waiting:
        assert future.result(60) == [[b"t", [(id, {b"a": b"1"})]]]


def test_a_pipeline_wakes_between_its_units(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    waiting = start(pool, db, lambda: db.xreadgroup("g", "c", {"s": ">"}, block=60_000), 0)
    pipe = db.pipeline(transaction=False)
    for number in range(3):
        pipe.xadd("s", {"n": number})
    pipe.execute()
    ((_, entries),) = waiting.result(60)
    assert [fields for _, fields in entries] == [{b"n": b"0"}]
    assert len(db.xreadgroup("g", "c", {"s": ">"})[0][1]) == 2


def test_time_runs_out(db: tidelog.Store) -> None:
    began = time.monotonic()
    assert db.xread({"s": "$"}, block=30) == []
    assert 0.02 < time.monotonic() - began < 20
    assert not inside.waiting(db).keys


def test_a_missing_group_ends_the_wait(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    waiting = start(pool, db, lambda: db.xreadgroup("g", "c", {"s": ">"}, block=0), 0)
    db.delete("s")
    with pytest.raises(tidelog.ResponseError, match="^NOGROUP No such key 's'"):
        waiting.result(60)


def test_nobody_blocks_inside_a_transaction(db: tidelog.Store) -> None:
    pipe = db.pipeline()
    pipe.xread({"s": "$"}, block=0)
    assert pipe.execute() == [[]]


def test_a_blocked_claim_is_served_when_an_entry_has_idled(
    db: tidelog.Store, pool: ThreadPoolExecutor
) -> None:
    db.xgroup_create("s", "g", id="0", mkstream=True)
    db.xadd("s", {"a": 1})
    db.xreadgroup("g", "dead", {"s": ">"})
    waiting = pool.submit(
        db.xreadgroup, "g", "heir", {"s": ">"}, block=60_000, claim_min_idle_time=50
    )
    ((_, ((_, fields, idle, deliveries),)),) = waiting.result(60)
    assert fields == {b"a": b"1"} and idle >= 50 and deliveries == 1
    assert db.xpending("s", "g")["consumers"] == [{"name": b"heir", "pending": 1}]


def test_close_wakes_everyone(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    waiting = [start(pool, db, lambda: db.xread({"s": "$"}, block=0), n) for n in range(3)]
    db.close()
    for future in waiting:
        with pytest.raises(tidelog.StoreClosed):
            future.result(60)


def test_under_always_the_woken_waits_for_the_disk_too(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with tidelog.open(tmp_path / "s", fsync="always") as db:
        db.xgroup_create("s", "g", mkstream=True)

        def consume() -> int:
            ((_, entries),) = db.xreadgroup("g", "c", {"s": ">"}, block=60_000)
            ended: int = inside.log(db).synced_lsn
            assert ended >= inside.log(db).written_lsn
            return len(entries)

        waiting = start(pool, db, consume, 0)
        db.xadd("s", {"a": 1})
        assert waiting.result(60) == 1


def test_an_interrupted_wait_leaves_the_queue(db: tidelog.Store) -> None:
    class Interrupt(BaseException):
        pass

    def interrupted(self: ThreadCaller, seconds: float | None) -> None:
        raise Interrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadCaller, "sleep", interrupted)
        with pytest.raises(Interrupt):
            db.xread({"s": "$"}, block=0)
    assert not inside.waiting(db).keys
    db.xadd("s", {"a": 1})


def test_many_threads_lose_and_double_nothing(db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    total, seen, lock = 2000, set[bytes](), threading.Lock()

    def work(name: str) -> None:
        while len(seen) < total:
            reply = db.xreadgroup("g", name, {"s": ">"}, count=7, block=300)
            if not reply:  # others have the last ones, or the writer had no time
                continue
            ids = [id for id, _ in reply[0][1]]
            assert db.xack("s", "g", *ids) == len(ids)
            with lock:
                assert not seen & set(ids)
                seen.update(ids)

    workers = [pool.submit(work, f"c{n}") for n in range(6)]
    for number in range(total):
        db.xadd("s", {"n": number})
    for worker in workers:
        worker.result(60)
    assert len(seen) == total and db.xpending("s", "g")["pending"] == 0


# --- tasks


def test_tasks_wait_in_order_and_beside_threads(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            await db.xgroup_create("s", "g", mkstream=True)
            tasks = []
            for number in range(3):
                tasks.append(
                    asyncio.create_task(
                        db.xreadgroup("g", f"c{number}", {"s": ">"}, count=1, block=60_000)
                    )
                )
                await asyncio.sleep(0)
            for number in range(3):
                await db.xadd("s", {"n": number})
                ((_, entries),) = await tasks[number]
                assert [fields for _, fields in entries] == [{b"n": b"%d" % number}]
            assert await db.xread({"s": "$"}, block=10) == []

    asyncio.run(main())


def test_a_cancelled_task_got_nothing_before_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            await db.xgroup_create("s", "g", mkstream=True)
            task = asyncio.create_task(db.xreadgroup("g", "c", {"s": ">"}, block=0))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not inside.waiting(db).keys
            await db.xadd("s", {"a": 1})
            assert (await db.xpending("s", "g"))["pending"] == 0
            assert len((await db.xreadgroup("g", "c", {"s": ">"}))[0][1]) == 1

    asyncio.run(main())


def test_a_task_cancelled_after_its_turn_has_the_entries_pending(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            await db.xgroup_create("s", "g", mkstream=True)
            task = asyncio.create_task(db.xreadgroup("g", "c", {"s": ">"}, block=0))
            await asyncio.sleep(0.01)
            await db.xadd("s", {"a": 1})  # serves it; the task has not run since
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await db.xpending("s", "g"))["pending"] == 1
            history = await db.xreadgroup("g", "c", {"s": "0"})
            assert [fields for _, fields in history[0][1]] == [{b"a": b"1"}]

    asyncio.run(main())


def test_under_always_an_fsync_never_blocks_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one task waits for a slow disk, the loop runs others."""

    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="always") as db:
            await db.xadd("s", {"a": 0})
            log = inside.log(db)
            slow, real = threading.Event(), RealFile.fdatasync

            def fdatasync(file: RealFile) -> None:
                assert threading.current_thread() is not threading.main_thread()
                slow.wait(60)
                real(file)

            monkeypatch.setattr(RealFile, "fdatasync", fdatasync)
            tasks = [asyncio.create_task(db.xadd("s", {"a": n})) for n in range(10)]
            for _ in range(20):
                await asyncio.sleep(0)
            assert not any(task.done() for task in tasks)
            ahead = await db.at("written").xlen("s")
            assert ahead == 11
            slow.set()
            assert len(await asyncio.gather(*tasks)) == 10
            assert log.synced_lsn == log.next_lsn - 1

    asyncio.run(main())
