"""Calls that meet each other's accidents: what breaks in one call neither hangs nor misleads another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import until

import tidelog
from tidelog.aof.log import Log
from tidelog.disk.real import RealFile
from tidelog.engine.keys.waiting import Waiting
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.commit.core import Core
from tidelog.store.commit.durability import Durability
from tidelog.store.commit.landing import Landing

PATIENCE_S = 60.0


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def waiting(pool: ThreadPoolExecutor, db: tidelog.Store, consumer: str = "c", *others: str) -> Any:
    before = len(inside.waiters(db))
    keys = dict.fromkeys(("s", *others), ">")
    found = pool.submit(lambda: db.xreadgroup("g", consumer, keys, block=0))
    until(lambda: len(inside.waiters(db)) == before + 1)
    return found


class Second:
    """A function that works once more and breaks the second time, before or after its work."""

    def __init__(self, real: Callable[..., Any], error: BaseException, after: bool) -> None:
        self.real, self.error, self.after, self.calls = real, error, after, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls != 2:
            return self.real(*args)
        if self.after:
            self.real(*args)
        raise self.error


def test_what_a_lost_gathered_unit_promised_is_not_acknowledged_by_the_next_log(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit waits for the next sync when the visit of a waiter, woken by it, breaks the log."""
    db = tidelog.open(tmp_path / "s")
    db.xgroup_create("s", "g", mkstream=True)
    reader = waiting(pool, db)
    log = inside.log(db)
    add = Second(Log.add, MemoryError("no"), after=False)

    def broken(self: Log, *args: Any) -> int:
        try:
            return add(self, *args)  # type: ignore[no-any-return]
        except MemoryError as error:
            self._doubts(error)
            raise

    monkeypatch.setattr(Log, "add", broken)
    monkeypatch.setattr(Log, "syncing", property(lambda log: True))  # so units are gathered
    with pytest.raises(tidelog.OutcomeUnknown):
        db.xadd("s", {"n": 1}, nomkstream=True)  # not the short way of a plain XADD
    assert inside.log(db) is not log and db.xlen("s") == 0
    with pytest.raises(tidelog.OutcomeUnknown):
        reader.result(PATIENCE_S)
    db.close()


def test_a_pipeline_whose_log_ended_between_its_parts_is_not_stored_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.store.commit.batch.FRAME_UNITS", 2)
    with tidelog.open(tmp_path / "s") as db:
        db.set("k", 0)
        monkeypatch.setattr(Log, "syncing", property(lambda log: True))
        parts = []

        def begin(landing: Landing, number: int, may_block: bool) -> Any:
            parts.append(landing.log)
            return real(landing, number, may_block)

        real_mend, real = Core.mend, Landing.begin
        monkeypatch.setattr(Landing, "begin", begin)
        lock = inside.lock(db)

        class Between:
            """The store's lock; before it is taken the second time, another caller breaks the log."""

            taken = 0

            def __enter__(self) -> None:
                lock.acquire()
                self.taken += 1
                if self.taken == 2:
                    inside.log(db)._gathered.clear()
                    inside.log(db)._doubts(MemoryError("no"))
                    inside.landing(db).trouble = "broken"

            def __exit__(self, *error: object) -> None:
                lock.release()

        monkeypatch.setattr(inside.core(db), "lock", Between())
        monkeypatch.setattr(Core, "mend", real_mend)
        pipe = db.pipeline(transaction=False)
        for _ in range(4):
            pipe.incr("k")
        with pytest.raises(tidelog.OutcomeUnknown):
            pipe.execute()
        monkeypatch.undo()
        assert db.get("k") == b"0"


def test_an_interrupt_while_a_waiter_is_served_tells_it_the_truth(
    db: tidelog.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waker is interrupted just after the waiter's claim was logged."""
    db.xgroup_create("s", "g", mkstream=True)
    reader = waiting(pool, db)
    land = Second(Landing.land, KeyboardInterrupt(), after=True)
    monkeypatch.setattr(Landing, "land", lambda landing, *unit: land(landing, *unit))
    with pytest.raises(KeyboardInterrupt):
        db.xadd("s", {"n": 1}, nomkstream=True)
    with pytest.raises(tidelog.OutcomeUnknown):
        reader.result(PATIENCE_S)
    assert db.xpending("s", "g")["pending"] == 1


def test_an_interrupt_between_two_visits_forgets_nobody(
    db: tidelog.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.xgroup_create("s", "g", mkstream=True)
    db.xgroup_create("t", "g", mkstream=True)
    # The second waits on two keys: it cannot be passed over, but is decided again.
    readers = [waiting(pool, db, "c0"), waiting(pool, db, "c1", "t")]
    real, calls = Waiting.remove, []

    def remove(self: Waiting, waiter: Any) -> None:
        real(self, waiter)
        calls.append(waiter)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Waiting, "remove", remove)
    with pytest.raises(KeyboardInterrupt):
        db.xadd_many("s", [{"n": 1}] * 1 + [{"n": 2}])
    monkeypatch.undo()
    assert len(readers[0].result(PATIENCE_S)[0][1]) == 2
    db.xadd("other", {"n": 3})
    assert len(inside.waiters(db)) == 1  # asked again, and nothing is left for it
    db.xadd("s", {"n": 4})
    assert len(readers[1].result(PATIENCE_S)[0][1]) == 1


def test_who_was_stored_is_not_told_of_a_failed_rebuild(
    db: tidelog.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serving a waiter breaks memory, and there is no room to rebuild it: not a matter of the waker's."""
    db.xgroup_create("s", "g", mkstream=True)
    waiting(pool, db)
    land = Second(Landing.land, MemoryError("no"), after=False)

    def broken(landing: Landing, *unit: Any) -> None:
        try:
            land(landing, *unit)
        except MemoryError as error:
            raise landing.broken(error, False) from error

    monkeypatch.setattr(Landing, "land", broken)
    recover, full = inside.landing(db)._recover, [True]

    def no_room(landing: Landing) -> Any:
        if full:
            raise OSError(28, "No space left on device")
        return recover(landing)

    inside.landing(db)._recover = no_room
    assert db.xadd("s", {"n": 1}, nomkstream=True)
    with pytest.raises(tidelog.OutOfSpace):
        db.xlen("s")
    full.clear()
    assert db.xlen("s") == 1


def test_nobody_is_served_who_was_interrupted_before_waiting(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.xgroup_create("s", "g", mkstream=True)

    def interrupted(store: Any, waiter: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tidelog.Store, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.xreadgroup("g", "c", {"s": ">"}, block=0)
    assert not inside.waiters(db)


def test_one_interrupted_twice_is_not_served(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second interrupt strikes while it leaves the queue."""
    db.xgroup_create("s", "g", mkstream=True)

    def interrupt(caller: ThreadCaller, seconds: float | None) -> None:
        raise KeyboardInterrupt

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadCaller, "sleep", interrupt)
    monkeypatch.setattr(Waiting, "remove", interrupted)
    monkeypatch.setattr(Core, "desert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.xreadgroup("g", "c", {"s": ">"}, block=0)
    monkeypatch.undo()
    db.xadd("s", {"n": 1})
    assert db.xpending("s", "g")["pending"] == 0


def test_a_transaction_that_was_interrupted_can_be_run_again(
    db: tidelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = db.pipeline().set("a", 1)
    monkeypatch.setattr("tidelog.store.commit.batch._Batch.unit", lambda *args: 1 / 0)
    begin = Second(lambda *args: None, KeyboardInterrupt(), after=False)
    submit = pipe._session.__class__.submit

    def interrupted(*args: Any) -> Any:
        begin()
        return submit(*args)

    monkeypatch.setattr(pipe._session.__class__, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipe.execute()  # between MULTI and EXEC
    monkeypatch.undo()
    assert pipe.set("b", 2).execute() == [True]
    assert not db.exists("a")


def test_watching_nothing_is_refused_as_redis_refuses_it(db: tidelog.Store) -> None:
    with pytest.raises(tidelog.ResponseError, match="wrong number of arguments for 'watch'"):
        db.pipeline().watch()


@pytest.mark.parametrize("many", [False, True])
def test_an_error_waits_for_what_it_tells_of(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """WRONGTYPE says that a string was set: not before the disk has that."""
    db = tidelog.open(tmp_path / "s")
    db.set("other", 1)
    begun, go = threading.Event(), threading.Event()
    real = RealFile.fdatasync

    def slow(file: RealFile) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)
        real(file)

    monkeypatch.setattr(RealFile, "fdatasync", slow)
    setting = pool.submit(db.set, "k", "v")
    assert begun.wait(PATIENCE_S)
    entered = threading.Event()
    fulfil = Durability.fulfil

    def noted(durability: Durability, *args: Any) -> None:
        entered.set()
        fulfil(durability, *args)

    monkeypatch.setattr(Durability, "fulfil", noted)
    adding = pool.submit(lambda: db.xadd_many("k", [{"n": 1}]) if many else db.xadd("k", {"n": 1}))
    assert entered.wait(PATIENCE_S) and not adding.done()
    go.set()
    assert setting.result(PATIENCE_S)
    with pytest.raises(tidelog.ResponseError, match="WRONGTYPE"):
        adding.result(PATIENCE_S)
    db.close()


def test_a_closed_store_starts_no_thread(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "s")
    db.close()
    before = threading.active_count()
    with pytest.raises(tidelog.StoreClosed):
        db.fsync = "everysec"
    assert threading.active_count() == before


def test_the_wakers_interrupt_is_no_end_of_the_wait(
    db: tidelog.Store, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes while the waiter is decided: nothing is logged yet."""
    db.xgroup_create("s", "g", mkstream=True)
    reader = waiting(pool, db)
    land = Second(Landing.land, KeyboardInterrupt(), after=False)
    monkeypatch.setattr(Landing, "land", lambda landing, *unit: land(landing, *unit))
    with pytest.raises(KeyboardInterrupt):
        db.xadd("s", {"n": 1}, nomkstream=True)
    assert len(reader.result(PATIENCE_S)[0][1]) == 1
    assert db.xpending("s", "g")["pending"] == 1
