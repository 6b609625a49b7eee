"""Troubles of an owner: its socket is removed, its log fails, it ends slowly, or it is another user's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import awaited, opened
from tests.client.owners import kill, owner_of
from tests.until import until

import tidelog
from tidelog.aof.layout import SHARED, SHARED_LOG
from tidelog.aof.lock import OWNER
from tidelog.client import processes
from tidelog.client.address import addresses_of
from tidelog.client.link import Link
from tidelog.client.starting import _account_of
from tidelog.disk.process import environment
from tidelog.disk.real import RealFile
from tidelog.store.errors import CannotOpen, StoreLocked


@pytest.fixture(params=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`tidelog.connect`, or `aconnect` with the client called as if it were for threads."""
    with ExitStack() as stack:
        if request.param == "threads":
            yield lambda *args, **given: stack.enter_context(tidelog.connect(*args, **given))
        else:
            yield lambda *args, **given: awaited(stack, tidelog.aconnect(*args, **given))


def test_a_socket_that_was_removed_is_made_again(root: Path, connect: Callable[..., Any]) -> None:
    with tidelog.connect(root) as db:
        db.set("k", "v")
        owner = owner_of(root)
        (root / SHARED).unlink()
        assert connect(root, timeout=60).get("k") == b"v"
        assert owner_of(root) == owner
        assert db.get("k") == b"v"
    assert f"{root / SHARED} was removed; it is made again" in (root / SHARED_LOG).read_text()


def test_an_owner_whose_log_fails_says_so_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = 0
    sync = RealFile.fdatasync

    def failing(file: RealFile) -> None:
        if error:
            raise OSError(error, os.strerror(error))
        sync(file)

    monkeypatch.setattr(RealFile, "fdatasync", failing)
    db = tidelog.open(tmp_path / "s", fsync="always")
    serving = tidelog.serve(db, port=0)
    assert serving.server is not None
    serving.server.config.owner = True
    client = tidelog.connect(tmp_path / "s", timeout=2)
    client.set("k", "v")
    error = errno.EIO
    with pytest.raises(tidelog.OutcomeUnknown):
        client.set("k", "w")
    until(lambda: not (tmp_path / "s" / SHARED).exists(), "it does not end")
    assert "so that another process takes over, because the log failed: " in caplog.text
    client.close()
    serving.close()
    with pytest.raises(tidelog.StorePoisoned):
        db.close()


FAILS = """
import os, sys
from tidelog.client import owner
from tidelog.disk.real import RealFile

sync = RealFile.fdatasync

def failing(file):
    if os.path.exists(sys.argv[2]):
        raise OSError(5, "Input/output error")
    sync(file)

RealFile.fdatasync = failing
owner.main([sys.argv[1]])
"""


@pytest.mark.slow
def test_an_owner_whose_log_fails_is_replaced(
    root: Path, tmp_path: Path, connect: Callable[..., Any]
) -> None:
    broken = tmp_path / "broken"
    words = [sys.executable, "-c", FAILS, str(root), str(broken)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment()) as owner:
        assert owner.stdout is not None and owner.stdout.readline()
        client = connect(root, timeout=60)
        mails = client.queue("mails")
        before = mails.put("before")
        broken.touch()
        with pytest.raises(tidelog.OutcomeUnknown):
            mails.put("unknown")
        assert owner.wait(60) is not None
        after = mails.put("after")
    assert owner_of(root) != owner.pid
    found = {job.id: job.value for job in mails.peek(3)}
    assert found[before] == "before" and found[after] == "after"
    log = (root / SHARED_LOG).read_text()
    assert "so that another process takes over, because the log failed: " in log


HOLDS = (
    "import fcntl, os, sys, time; lock = open(sys.argv[2], 'r+'); fcntl.flock(lock, fcntl.LOCK_EX); "
    "lock.write(f'{os.getpid()}\\n'); lock.truncate(); lock.flush(); print('held', flush=True); "
    "time.sleep(float(sys.argv[3]))"
)


@contextmanager
def ending_owner(root: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock of a store for so long, as an owner that ends slowly."""
    with tidelog.connect(root) as db:
        db.set("k", "v")
    kill(root)
    words = [sys.executable, "-c", HOLDS, OWNER, str(root / "LOCK"), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None and slow.stdout.readline() == "held\n"
        try:
            yield slow
        finally:
            slow.kill()


@pytest.mark.slow
def test_a_client_waits_for_an_owner_that_ends_slowly(root: Path) -> None:
    """Longer than another owner waits for the lock."""
    with ending_owner(root, 7) as slow, tidelog.connect(root, timeout=60) as db:
        assert db.get("k") == b"v"
        assert slow.poll() is not None


def test_an_owner_that_has_just_ended_is_replaced(root: Path) -> None:
    """It had the lock when another owner gave up, and is gone when the client hears of it."""
    with ending_owner(root, 600) as slow, pytest.raises(StoreLocked) as caught:
        try:
            tidelog.open(root)
        finally:
            slow.kill()
            slow.wait(60)
    link = Link(addresses_of(root), 60, {})
    link._failed_start(f"StoreLocked: {caught.value}")


@pytest.mark.parametrize(
    ("executable", "words"),
    [
        (None, "sys.executable, the Python to start, is None"),
        ("", "sys.executable, the Python to start, is ''"),
        ("/nonexistent/python", "sys.executable '/nonexistent/python': .*No such file"),
        ("/bin/false", "could not start"),
    ],
)
def test_a_python_that_cannot_be_started(
    root: Path,
    executable: Any,
    words: str,
    connect: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(CannotOpen, match=words):
        connect(root, timeout=2)


def test_a_store_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tidelog.open(tmp_path / "s").close()
    lock = tmp_path / "s" / "LOCK"
    mine = lock.stat().st_uid
    assert _account_of(tmp_path / "s") == {} == _account_of(tmp_path / "missing")
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(PermissionError, match="the store belongs to another user"):
        _account_of(tmp_path / "s")
    # the superuser starts the owner as that user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if not mine:
        os.chown(lock, 65_534, 65_533)
    owner = lock.stat()
    assert _account_of(tmp_path / "s") == {
        **{"user": owner.st_uid, "group": owner.st_gid, "extra_groups": ()}
    }


def test_a_child_that_ends_before_it_was_told_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    give, told = processes._Child.give, list[Any]()

    def after_its_end(child: Any, data: bytes) -> None:
        told.append(child)
        if len(told) == 1:
            child.process.kill()
            until(lambda: child.process.stdin.closed)
        give(child, data)

    monkeypatch.setattr(processes._Child, "give", after_its_end)
    run = processes.Processes(
        ["-c", "import sys; sys.stdin.read()"],
        2,
        5.0,
        False,
        given=b"x",
        over=lambda: len(told) >= 3,
    )
    monkeypatch.setattr(processes, "FIRST_PAUSE_S", 0.01)
    assert run.run() == 0


CHANGES = (
    "MULTI,EXEC,DISCARD,WATCH a,UNWATCH,SUBSCRIBE c,PSUBSCRIBE c,SSUBSCRIBE c,UNSUBSCRIBE,MONITOR,SYNC,HELLO 3,AUTH x,"
    "RESET,QUIT,SELECT 1,CLIENT REPLY OFF,client reply skip,CLIENT TRACKING ON,CLIENT NO-TOUCH ON,CLIENT SETNAME x,"
    "TIDELOG FOLLOW 1 2 3 4 5 6 7"
)


@pytest.mark.parametrize("kind", ["shared", "shared asyncio"])
def test_a_command_that_would_change_a_connection(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "s") as db:
        for number, words in enumerate(CHANGES.split(","), 1):
            for call in (db.execute_command, db.pipeline().execute_command):
                with pytest.raises(tidelog.DataError):
                    call(*words.split())
            assert db.set("a", words) and db.get("a") == words.encode() and db.incr("n") == number
        # these change nothing that another call would see
        for harmless in ("CLIENT ID", "CLIENT GETNAME", "PING", "COMMAND COUNT"):
            db.execute_command(*harmless.split())
