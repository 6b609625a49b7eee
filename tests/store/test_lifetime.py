"""Living inside someone's process: fork, exit without close, the last reference, pickling, a second writer."""

from __future__ import annotations

import copy
import fcntl
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests import inside
from tests.until import unlocked, until

import tidelog
from tidelog.aof import ahead
from tidelog.disk.real import RealFile
from tidelog.store.commit import callers
from tidelog.store.lifetime import Keeper


def run(program: str, *args: object, wanted: int = 0) -> str:
    """A Python program in a process of its own; what it printed."""
    source = "import sys, tidelog\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source, *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == wanted, done.stderr
    return done.stdout


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_program_that_never_closes_exits_promptly_with_everything_on_the_disk(
    tmp_path: Path, fsync: str
) -> None:
    began = time.monotonic()
    run(
        """
        db = tidelog.open(sys.argv[1], fsync=sys.argv[2])
        for number in range(100):
            db.xadd("s", {"n": number})
        """,
        tmp_path / "s",
        fsync,
    )
    assert time.monotonic() - began < 100
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") == 100


def test_exit_while_a_daemon_thread_writes_and_another_waits(tmp_path: Path) -> None:
    told = run(
        """
        import threading
        db = tidelog.open(sys.argv[1], fsync="everysec")
        db.xadd("s", {"n": 0})
        def write():
            while True:
                try:
                    db.xadd("s", {"n": 1})
                except tidelog.TidelogError:
                    return
        threading.Thread(target=write, daemon=True).start()
        threading.Thread(target=lambda: db.xread({"none": "$"}, block=0), daemon=True).start()
        while db.xlen("s") < 1000:
            pass
        print(db.xlen("s"))
        """,
        tmp_path / "s",
    )
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") >= int(told)


def test_the_last_reference_releases_the_store(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "s", fsync="everysec")
    db.xadd("s", {"a": 1})
    del db
    gc.collect()
    with unlocked(lambda: tidelog.open(tmp_path / "s")) as again:
        assert again.xlen("s") == 1


def test_a_view_keeps_the_store_open_and_does_not_close_it(tmp_path: Path) -> None:
    view = tidelog.open(tmp_path / "s", fsync="no").db(3)
    gc.collect()
    with view:
        view.xadd("s", {"a": 1})
    assert view.xlen("s") == 1
    view.close()
    assert view.closed
    with pytest.raises(tidelog.StoreClosed, match="open it again"):
        view.xlen("s")
    view.close()


def test_after_a_fork_the_childs_store_is_dead_and_the_parents_lives(tmp_path: Path) -> None:
    told = run(
        """
        import os, threading
        db = tidelog.open(sys.argv[1])
        db.xadd("s", {"a": 1})
        busy = threading.Thread(target=lambda: [db.xadd("s", {"a": 2}) for _ in range(200)])
        busy.start()
        pid = os.fork()
        if pid == 0:
            for call in (lambda: db.xlen("s"), lambda: db.xadd("s", {"a": 3}), db.close, db.digest,
                         lambda: db.pipeline().set("a", 1).execute(), db.barrier):
                try:
                    call()
                    print("no error")
                except tidelog.StoreClosed as error:
                    assert "fork" in str(error) and "open it again" in str(error)
            sys.exit()
        busy.join()
        assert os.waitpid(pid, 0)[1] == 0
        db.xadd("s", {"a": 4})
        try:
            tidelog.open(sys.argv[1])
        except tidelog.StoreLocked as error:
            assert error.pid == os.getpid()
        print(db.xlen("s"))
        db.close()
        """,
        tmp_path / "s",
    )
    assert told == "202\n"
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") == 202


def test_a_child_does_not_hold_the_parents_lock(tmp_path: Path) -> None:
    run(
        """
        import os, time
        db = tidelog.open(sys.argv[1])
        alive, running = os.pipe()
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            os.write(running, b".")  # the hook has run
            os.read(read, 1)  # until the parent is gone
            os._exit(0)
        os.read(alive, 1)
        db.close()
        tidelog.open(sys.argv[1]).close()
        """,
        tmp_path / "s",
    )


def test_pickling_and_copying_are_refused_with_a_reason(db: tidelog.Store) -> None:
    for thing in (db, db.pipeline()):
        with pytest.raises(TypeError, match="pickl"):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match="pickl"):
            copy.copy(thing)


def test_a_second_writer_is_told_who_holds_it(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s"):
        with pytest.raises(tidelog.StoreLocked, match=str(os.getpid())) as caught:
            tidelog.open(tmp_path / "s")
        assert caught.value.pid == os.getpid()
        told = run(
            """
            try:
                tidelog.open(sys.argv[1])
            except tidelog.StoreLocked as error:
                print(error.pid)
            """,
            tmp_path / "s",
        )
        assert int(told) == os.getpid()
    tidelog.open(tmp_path / "s").close()


def test_background_threads_are_daemons_and_end_with_the_store(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with tidelog.open(tmp_path / "s", fsync="everysec") as db:
        db.xadd("s", {"a": 1})
        db.barrier()
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    assert set(threading.enumerate()) <= before


def test_settings_of_the_process_stay_as_they_are(tmp_path: Path) -> None:
    def settings() -> tuple[object, ...]:
        import locale
        import logging

        return (
            sys.getswitchinterval(),
            gc.isenabled(),
            gc.get_threshold(),
            signal.getsignal(signal.SIGINT),
            locale.setlocale(locale.LC_ALL),
            list(logging.getLogger().handlers),
            list(logging.getLogger("tidelog").handlers),
        )

    before, frozen = settings(), gc.get_freeze_count()
    with tidelog.open(tmp_path / "s") as db:
        db.xadd("s", {"a": 1})
        assert settings() == before
    assert settings() == before
    assert gc.get_freeze_count() <= frozen  # less, if an object that was frozen earlier has died


def test_an_interrupt_of_a_busy_program_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """SIGINT strikes a loop of XADDs a hundred times; the store goes on after each."""
    told = run(
        """
        import signal, threading, time
        db = tidelog.open(sys.argv[1], fsync="no")
        acknowledged = []
        main = threading.get_ident()
        begun = struck = 0
        def strike():
            # One signal at a time, and only into the `try` below. To wait is to poll: CPython 3.11 can leave a
            # signal pending until another thread asks for the interpreter's lock.
            for n in range(100):
                time.sleep(0.005)
                while begun <= n:
                    time.sleep(0.005)
                signal.pthread_kill(main, signal.SIGINT)
            while struck < 100:
                time.sleep(0.005)
        thread = threading.Thread(target=strike, daemon=True)
        thread.start()
        while struck < 100:
            try:
                begun += 1
                while True:
                    acknowledged.append(db.xadd("s", {"n": len(acknowledged)}))
            except KeyboardInterrupt:
                struck += 1
        there = {id for id, _ in db.xrange("s")}
        assert set(acknowledged) <= there and len(there) <= len(acknowledged) + struck
        print(struck, len(there), db.digest())
        """,
        tmp_path / "s",
    )
    struck, count, digest = told.split()
    assert int(struck) > 50
    with tidelog.open(tmp_path / "s") as db:
        assert db.xlen("s") == int(count) and db.digest() == digest


@pytest.mark.parametrize("make", ["file", "foreign"])
def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path, make: str) -> None:
    path = tmp_path / "s"
    if make == "file":
        path.write_text("text")
    else:
        path.mkdir()
        (path / "letter").write_text("text")
    for read_only in (False, True):
        with pytest.raises(tidelog.CannotOpen, match=str(path)):
            tidelog.open(path, read_only=read_only)
    assert make == "file" or [p.name for p in path.iterdir()] == ["letter"]


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(tidelog.DataError, match="fsync must be one of: always, everysec, no"):
        tidelog.open(tmp_path / "s", fsync="sometimes")
    with pytest.raises(tidelog.DataError, match="segment_bytes"):
        tidelog.open(tmp_path / "s", segment_bytes=1)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_poisoned_store_goes_with_its_last_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """The error that is kept must not keep the frames it went through, and what they hold."""
    path = tmp_path / "s"
    db = tidelog.open(path, fsync=policy)
    db.set("k", 1)

    def failing(file: RealFile) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RealFile, "fdatasync", failing)
    with pytest.raises(tidelog.OutcomeUnknown):
        db.at("fsynced").set("k", 2)
    monkeypatch.undo()
    gone = weakref.ref(inside.core(db))
    del db
    gc.collect()
    until(lambda: gone() is None, "something keeps the store")
    unlocked(lambda: tidelog.open(path)).close()


def test_a_store_collected_in_a_thread_of_its_log_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    db: Any = tidelog.open(path, fsync="everysec")
    db.set("k", 1)
    db.cycle = db  # only the collector can take it
    gone = weakref.ref(inside.core(db))
    log: Any = inside.log(db)
    del db
    gc.disable()
    try:
        real = RealFile.fdatasync

        def collecting(file: RealFile) -> None:
            if threading.current_thread().name == "tidelog-sync":
                gc.collect()
            real(file)

        monkeypatch.setattr(RealFile, "fdatasync", collecting)
        log._commit.request()
        until(lambda: gone() is None and log._closed and not log._commit._thread.is_alive())
    finally:
        gc.enable()
    for thread in threading.enumerate():
        if thread.name == "closing tidelog":
            thread.join(60)
    with tidelog.open(path) as again:
        assert again.get("k") == b"1"


def pressed(db: tidelog.Store) -> None:
    core = inside.core(db)
    relief = threading.Event()
    core.press(relief)

    def relieve() -> None:
        core.press(None)
        relief.set()

    timer = threading.Timer(0.2, relieve)
    timer.start()
    try:
        db.set("k", 1)
    finally:
        timer.join(60)
        assert not timer.is_alive()


def rebuilt(db: tidelog.Store) -> None:
    with inside.lock(db):
        inside.log(db)._doubts(OSError("a write broke off"))
        inside.landing(db).trouble = "memory is ahead of the log"
    db.set("k", 1)


@pytest.mark.parametrize(
    "call", [lambda db: db.queue("q").get(block=0), tidelog.Store.checkpoint, pressed, rebuilt]
)
@pytest.mark.parametrize("at", [0, 1])
def test_an_interrupt_while_a_thread_of_the_store_is_woken_locks_nothing(
    tmp_path: Path, call: Callable[[tidelog.Store], Any], at: int
) -> None:
    """It strikes in the standard library, between its taking a lock and its caller's knowing of that."""
    places = tuple(
        os.path.dirname(os.path.realpath(each.__code__.co_filename))
        for each in (callers.Bell.ring, ahead.Ahead.stop)
    )
    passed = 0

    def leaving(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal passed
        caller = frame.f_back and frame.f_back.f_back
        if (
            event == "return"
            and caller
            and os.path.realpath(caller.f_code.co_filename).startswith(places)
        ):
            passed += 1
            if passed == at + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return leaving

    def calling(frame: FrameType, event: str, arg: Any) -> Any:
        return leaving if frame.f_code is threading.Condition.__enter__.__code__ else None

    db = tidelog.open(tmp_path / "s", fsync="everysec")
    db.queue("q").put(1)
    before = sys.gettrace()
    sys.settrace(calling)
    try:
        call(db)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)

    def go_on() -> None:
        call(db)
        db.close()

    others = threading.Thread(target=go_on, daemon=True)
    others.start()
    others.join(60)
    assert not others.is_alive()


def test_an_open_that_is_interrupted_while_it_locks_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def interrupted(descriptor: int, how: int) -> None:
        lock(descriptor, how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tidelog.open(tmp_path / "s")
    tidelog.open(tmp_path / "s").close()


def test_an_interrupted_close_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tidelog.open(tmp_path / "s", fsync="everysec")
    db.set("k", 1)
    real = Keeper.close

    def interrupted(keeper: Keeper) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.close()
    monkeypatch.setattr(Keeper, "close", real)
    db.close()
    tidelog.open(tmp_path / "s").close()


def test_whoever_closes_second_waits_for_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    db.set("k", 1)
    entered, go = threading.Event(), threading.Event()
    real = RealFile.fdatasync

    def slow(file: RealFile) -> None:
        entered.set()
        assert go.wait(60)
        real(file)

    monkeypatch.setattr(RealFile, "fdatasync", slow)
    opened = []
    first = threading.Thread(target=db.close)

    def close_and_open() -> None:
        db.close()
        with tidelog.open(tmp_path / "s") as again:
            opened.append(again.get("k"))

    second = threading.Thread(target=close_and_open)
    first.start()
    assert entered.wait(60)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go.set()
    first.join(60)
    second.join(60)
    assert opened == [b"1"]


def test_a_closed_store_can_be_opened_while_a_child_still_holds_the_descriptor(
    tmp_path: Path,
) -> None:
    """A child forked just before shares the lock's open file until its hook has run."""
    db = tidelog.open(tmp_path / "s")
    keeper: Any = inside.core(db).keeper
    inherited = os.dup(keeper.lock._fd)
    try:
        db.close()
        tidelog.open(tmp_path / "s").close()
    finally:
        os.close(inherited)
