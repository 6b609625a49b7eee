"""Programs under `tidelog_crash` that are no good: they hang, fork, exit, promise nothing or differ from run to run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.until import parked

import tidelog
from tidelog.testing import crashes, limits, scratch
from tidelog.testing.crashes import Crashes, CrashFailure, CrashWarning, Told
from tidelog.testing.limits import Limit

Hang = Callable[[], None]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Limit]:
    """The limits that a test makes."""
    made: list[Limit] = []

    class Kept(Limit):
        def __init__(self, seconds: float) -> None:
            super().__init__(seconds)
            made.append(self)

    monkeypatch.setattr(crashes, "Limit", Kept)
    return made


@pytest.fixture
def hang(made: list[Limit]) -> Hang:
    """Lets the time be over at the line that calls it, so that no test depends on a time."""

    def hang() -> None:
        made[-1]._ends = 0.0
        signal.raise_signal(limits.SIGNAL)

    return hang


def place(db: tidelog.Store, told: Callable[[int], object]) -> None:
    for n in range(2):
        db.xadd("orders", {"n": n})
        told(n)


def nothing(db: tidelog.Store, told: Told) -> None:
    pass


def failure(*programs: Any, seconds: float = 60.0, states: int = 30) -> str:
    before = signal.getsignal(limits.SIGNAL)
    with pytest.raises(CrashFailure) as caught:
        Crashes(1, states, seconds)(*programs)
    assert signal.getsignal(limits.SIGNAL) is before
    return str(caught.value)


def test_a_life_that_hangs_is_ended() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        threading.Event().wait()  # never set

    text = failure(life, nothing, seconds=0.3)
    assert text.startswith("life did not end within 0.3 s (--crash-timeout). It stands at\n")


def test_the_stack_of_a_life_that_hangs_is_shown(hang: Hang) -> None:
    def inner() -> None:
        hang()  # the innermost

    def life(db: tidelog.Store, told: Told) -> None:
        place(db, told)
        inner()

    first, *stack = failure(life, nothing).splitlines()
    assert first == "life did not end within 60 s (--crash-timeout). It stands at"
    (at,) = [n for n, line in enumerate(stack) if line.endswith(": hang()  # the innermost")]
    assert stack[at + 1].endswith(": inner()")
    assert "test_crash_workloads.py:" in stack[at]


def test_a_life_that_waits_for_a_thread_that_hangs_in_the_store(hang: Hang) -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        def work() -> None:
            with pytest.raises(tidelog.StoreClosed):
                db.xread({"orders": "$"}, block=0)  # for ever

        thread = threading.Thread(target=work, name="worker")
        thread.start()
        threads.append(thread)
        parked(db)
        hang()

    threads: list[threading.Thread] = []
    text = failure(life, nothing)
    assert "\n  worker, " in text and "block=0)  # for ever" in text
    (thread,) = threads
    thread.join(60)
    assert not thread.is_alive()


def test_the_stack_of_a_coroutine_that_hangs_is_shown(made: list[Limit]) -> None:
    async def inner() -> None:
        await asyncio.Event().wait()  # never set

    async def life(db: tidelog.AsyncStore, told: Told) -> None:
        # It is called when this task waits. The loop drops what a signal raises in a callback, so it is sent again.
        asyncio.get_running_loop().call_soon(sender.start)
        await inner()

    def send() -> None:
        made[-1]._ends = 0.0
        while made[-1]._ends is not None:
            signal.pthread_kill(threading.main_thread().ident or 0, limits.SIGNAL)
            time.sleep(0.05)

    sender = threading.Thread(target=send)
    text = failure(life, nothing)
    sender.join()
    assert text.startswith("life did not end within 60 s")
    assert "await asyncio.Event().wait()  # never set\n" in text
    assert ": await inner()\n" in text + "\n"


def test_a_check_that_hangs_after_a_crash_is_shown_with_the_crash(hang: Hang) -> None:
    def after(db: tidelog.Store, told: Told) -> None:
        if told.count == 1:
            hang()  # after a crash

    text = failure(place, after)
    assert text.startswith("after a crash the check failed: the check did not end within 60 s")
    assert ": hang()  # after a crash\n" in text
    assert "told by then: 0\n" in text


def test_a_program_that_catches_every_exception_is_ended_too() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        try:
            threading.Event().wait()
        except BaseException:
            threading.Event().wait()

    assert failure(life, nothing, seconds=0.3).startswith("life did not end within 0.3 s")


def test_in_another_thread_there_is_no_limit_and_everything_else_works() -> None:
    def run() -> None:
        Crashes(1, 5, 0.001)(place, nothing)
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]


def test_a_process_that_life_forks_does_not_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        place(db, told)
        process = os.fork()
        if process == 0:
            told("by the child")
            db.xadd("orders", {"n": 7})  # raises StoreClosed, as in each process that is forked
        else:
            _, status = os.waitpid(process, 0)
            codes.append(os.waitstatus_to_exitcode(status))

    def after(db: tidelog.Store, told: Told) -> None:
        assert "by the child" not in told
        assert told.count <= db.xlen("orders")

    codes: list[int] = []
    Crashes(1, 10)(life, after)
    assert codes == [limits.FORKED]
    _, err = capfd.readouterr()
    assert "StoreClosed" in err
    assert "a process that life forked came back from it, and is ended; call os._exit in it" in err


def test_a_process_that_ends_itself_is_the_business_of_the_program() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        place(db, told)
        if (process := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0

    Crashes(1, 10)(life, nothing)


def test_a_life_that_never_promises_is_warned_about() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        db.xadd("orders", {"n": 1})

    with pytest.warns(CrashWarning, match="life told nothing") as caught:
        Crashes(1, 5)(life, nothing)
    assert caught[0].filename == __file__


def test_a_life_that_differs_from_run_to_run_is_recorded_once() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        value = os.urandom(8).hex()
        db.set("value", value)
        told(value)

    def after(db: tidelog.Store, told: Told) -> None:
        if told.count:
            assert db.get("value") == told.values[0].encode()

    Crashes(1, 20)(life, after)


def test_a_check_that_differs_from_run_to_run_is_told() -> None:
    runs: list[int] = []

    def after(db: tidelog.Store, told: Told) -> None:
        runs.append(told.count)
        assert len(runs) != 5, "once"

    text = failure(place, after)
    assert text.startswith("after a crash the check failed: AssertionError: once")
    assert text.endswith("it passed: it differs from run to run")

    def wrong(db: tidelog.Store, told: Told) -> None:
        assert told.count != 1

    assert "it differs" not in failure(place, wrong)


@pytest.mark.parametrize("ends", [lambda: sys.exit("gone"), lambda: pytest.fail("gone")])
def test_a_check_that_exits_or_calls_fail_is_shown_with_the_crash(ends: Callable[[], None]) -> None:
    def after(db: tidelog.Store, told: Told) -> None:
        if told.count == 1:
            ends()

    text = failure(place, after)
    assert text.splitlines()[0].endswith(": gone")
    assert "told by then: 0\n" in text


def test_a_check_that_is_skipped_skips_the_test() -> None:
    def after(db: tidelog.Store, told: Told) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        Crashes(1, 5)(place, after)


def test_a_life_that_opens_its_store_twice_gets_the_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "TMPFS", tmp_path)

    def life(db: tidelog.Store, told: Told) -> None:
        place(db, told)
        (log,) = tmp_path.rglob("aof")
        with pytest.raises(tidelog.StoreLocked):
            tidelog.open(log.parent)
        told("locked")

    def after(db: tidelog.Store, told: Told) -> None:
        assert min(told.count, 2) <= db.xlen("orders")

    Crashes(1, 10)(life, after)
    assert list(tmp_path.iterdir()) == []


def test_a_life_may_open_another_store_which_no_crash_touches(tmp_path: Path) -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        with tidelog.open(tmp_path / "other") as other:
            place(other, lambda n: None)
            other.checkpoint()
            place(db, told)

    def after(db: tidelog.Store, told: Told) -> None:
        assert told.count <= db.xlen("orders")
        with tidelog.open(tmp_path / "other") as other:
            assert other.xlen("orders") == 2

    Crashes(1, 10)(life, after)


def test_a_life_that_closes_its_store_has_ended_well() -> None:
    def life(db: tidelog.Store, told: Told) -> None:
        place(db, told)
        db.close()

    def after(db: tidelog.Store, told: Told) -> None:
        assert told.count <= db.xlen("orders")
        db.close()

    Crashes(1, 10)(life, after)


def test_a_check_that_writes_changes_no_other_state() -> None:
    def after(db: tidelog.Store, told: Told) -> None:
        assert db.get("mark") is None
        assert {int(fields[b"n"]) for _, fields in db.xrange("orders")} >= set(told)
        db.set("mark", "here")
        db.delete("orders")

    Crashes(1, 20)(place, after, double=False)
