"""Troubles of an owner: its socket is removed, its log fails, it ends slowly, or it is another user's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import kill, owner_of
from tests.until import until

import tidelog
from tidelog.aof.layout import SHARED, SHARED_LOG
from tidelog.aof.lock import OWNER
from tidelog.client import processes
from tidelog.client.starting import _account_of
from tidelog.disk.real import RealFile
from tidelog.store.errors import CannotOpen


def test_a_socket_that_was_removed_is_made_again(root: Path) -> None:
    with tidelog.connect(root) as db:
        db.set("k", "v")
        owner = owner_of(root)
        (root / SHARED).unlink()
        with tidelog.connect(root, timeout=60) as other:
            assert other.get("k") == b"v"
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


@pytest.mark.slow
def test_a_client_waits_for_an_owner_that_ends_slowly(root: Path) -> None:
    """Longer than another owner waits for the lock."""
    with tidelog.connect(root) as db:
        db.set("k", "v")
    kill(root)
    hold = (
        "import fcntl, os, sys, time; lock = open(sys.argv[2], 'r+'); fcntl.flock(lock, fcntl.LOCK_EX); "
        "lock.write(f'{os.getpid()}\\n'); lock.truncate(); lock.flush(); print('held', flush=True); time.sleep(7)"
    )
    words = [sys.executable, "-c", hold, OWNER, str(root / "LOCK")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None and slow.stdout.readline() == "held\n"
        with tidelog.connect(root, timeout=60) as db:
            assert db.get("k") == b"v"
            assert slow.poll() is not None


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
    root: Path, executable: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(CannotOpen, match=words):
        tidelog.connect(root, timeout=2)


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


@pytest.mark.parametrize("words", CHANGES.split(","))
def test_a_command_that_would_change_a_connection(words: str, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s") as served, tidelog.serve(served, port=0):
        with tidelog.connect(tmp_path / "s") as db:
            calls: list[Callable[..., object]] = [db.execute_command]
            calls.append(db.pipeline().execute_command)
            for call in calls:
                with pytest.raises(tidelog.DataError):
                    call(*words.split())
            assert db.set("a", "v") and db.get("a") == b"v" and db.incr("n") == 1
            # these change nothing that another call would see
            for harmless in ("CLIENT ID", "CLIENT GETNAME", "PING", "COMMAND COUNT"):
                db.execute_command(*harmless.split())
