"""The owner: started by the first client, replaced when it ends, and never two at a time. Real processes."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from tests.client.owners import is_running, kill, owner_of
from tests.until import until

import tidelog
from tidelog.aof.layout import SHARED, SHARED_LOG
from tidelog.aof.lock import OWNER
from tidelog.client import link
from tidelog.client.address import addresses_of
from tidelog.client.starting import READY, Starting
from tidelog.disk.turn import take_turn


def test_the_first_client_starts_the_owner_and_others_find_it(root: Path) -> None:
    with tidelog.connect(root) as one, tidelog.connect(root) as two:
        pid = owner_of(root)
        assert pid != os.getpid()
        assert os.getsid(pid) != os.getsid(0)
        one.set("k", "v")
        assert two.get("k") == b"v" and two.fsync == "always"
        assert stat.S_IMODE((root / SHARED).stat().st_mode) == 0o600
        assert stat.S_ISSOCK((root / SHARED).stat().st_mode)
        with pytest.raises(tidelog.StoreLocked, match=re.escape(f"connect({str(root)!r})")):
            tidelog.open(root)
        with tidelog.open(root, read_only=True) as reader:
            assert reader.get("k") == b"v"
        # --- an owner that was killed is replaced by the next call
        queue = two.queue("q")
        queue.put(1)
        job = queue.get("w", block=0)
        assert job is not None
        kill(root)
        assert one.incr("n") == 1
        assert owner_of(root) not in (pid, os.getpid())
        assert job.ack() and len(queue) == 0
        # --- and one that is told to end, too
        kill(root, signal.SIGTERM)
        assert not (root / SHARED).exists()
        assert two.incr("n") == 2
        assert "SIGTERM: stopping" in (root / SHARED_LOG).read_text()


@pytest.mark.slow
def test_several_that_start_at_once_are_one(root: Path) -> None:
    found: list[Any] = []
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            with tidelog.connect(root) as db:
                found.append(db.incr("n"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and sorted(found) == [1, 2, 3, 4]


def test_a_child_of_a_fork_connects_anew(root: Path) -> None:
    with tidelog.connect(root) as db:
        queue = db.queue("q")
        queue.put("parent")
        job = queue.get("w", block=0)
        assert job is not None
        child = os.fork()
        if not child:
            code = 1
            try:
                queue.put("child")
                code = 0 if db.incr("n") == 1 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert db.incr("n") == 2
        assert job.ack()
        assert [waiting.value for waiting in queue.peek()] == ["child"]


def test_long_paths(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*["d" * 50] * 4)
    root.parent.mkdir(parents=True)
    with tidelog.open(root) as db, tidelog.serve(db, port=0), tidelog.connect(root) as shared:
        shared.set("k", "v")
        assert db.get("k") == b"v"
    assert not (root / SHARED).exists()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "store"
    tidelog.open(root).close()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(root / SHARED))
    with tidelog.open(root) as db, tidelog.serve(db, port=0), tidelog.connect(root) as shared:
        assert shared.ping()


def test_another_kind_of_file_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "store"
    with tidelog.open(root) as db:
        (root / SHARED).write_text("mine")
        with tidelog.serve(db, port=0) as serving:
            assert serving.port
        assert "cannot be created: File exists" in caplog.text
        assert (root / SHARED).read_text() == "mine"


def test_a_program_that_does_not_serve_its_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tidelog.open(root) as db:
        with pytest.raises(tidelog.StoreLocked, match=r"does not serve it: .*tidelog\.serve"):
            tidelog.connect(root)
        with tidelog.serve(db, port=0), tidelog.connect(root) as shared:
            assert shared.ping()


def test_an_owner_that_finds_another_server_leaves_the_store_to_it(root: Path) -> None:
    """Then its client connects to that one, also if it was killed in between and has to be started again."""
    with tidelog.open(root) as db, tidelog.serve(db, port=0):
        words = [sys.executable, "-m", "tidelog.client.owner", str(root)]
        found = subprocess.run(words, capture_output=True, timeout=60)
        assert (found.returncode, found.stdout, found.stderr) == (0, READY, b"")


def test_a_server_that_is_killed_before_the_client_connects_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []

    class Killed(Starting):
        """Its server was ready, and nobody listens."""

        def __init__(self, root: Path, options: Mapping[str, str]) -> None:
            started.append(root)

        def look(self, seconds: float) -> str:
            return ""

        def close(self) -> None:
            if len(started) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(link, "Starting", Killed)
    with pytest.raises(KeyboardInterrupt):
        tidelog.connect(tmp_path / "store", timeout=60)
    assert started == [tmp_path / "store"] * 3


@pytest.mark.parametrize("said", [b"", b"2026-11-24T21:23:17Z INFO opened\n"])
def test_an_owner_that_is_killed_while_it_starts_is_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    started: list[Path] = []

    class Killed(Starting):
        """The first one is killed, before or after it wrote a line of its log."""

        def __init__(self, root: Path, options: Mapping[str, str]) -> None:
            started.append(root)
            if len(started) > 1:
                super().__init__(root, options)
                return
            self._pipe, theirs = os.pipe()
            os.write(theirs, said)
            os.close(theirs)
            self._said = bytearray()

    monkeypatch.setattr(link, "Starting", Killed)
    with tidelog.connect(root) as db:
        assert db.incr("n") == 1
    assert len(started) == 2


def test_owners_that_are_killed_again_and_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    begun = time.monotonic()
    with pytest.raises(tidelog.CannotOpen, match="could not start: it was killed"):
        tidelog.connect(root)
    # Not for the 30 seconds for which it waits for an owner.
    assert time.monotonic() - begun < 20


def test_many_that_miss_an_owner_start_one(
    root: Path, started: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "TURN_S", 60.0)  # however busy the machine is
    clients = [tidelog.connect(root) for _ in range(8)]
    kill(root)
    started.clear()
    threads = [threading.Thread(target=client.incr, args=("n",)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert clients[0].get("n") == b"8"
    assert len(started) == 1
    for client in clients:
        client.close()


def test_nobody_waits_for_ever_for_a_turn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that was to start the owner, and hangs."""
    monkeypatch.setattr(link, "TURN_S", 0.1)
    root.mkdir()
    turn = take_turn(root)
    assert turn is not None and take_turn(root) is None
    with tidelog.connect(root) as db:
        assert db.incr("n") == 1
    turn.close()
    turn.close()


# Like an owner that has the store, and does not listen yet. Its words are those of an owner.
_BEGINS: Final = """
import os, sys
from pathlib import Path
from tidelog.aof.lock import acquire
from tidelog.disk.real import RealDisk
lock = acquire(RealDisk(), Path(sys.argv[1]), os.getpid())
print("locked", flush=True)
sys.stdin.read()
"""


def test_nobody_starts_a_second_owner_beside_one_that_begins(
    root: Path, started: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would load all modules to find the store open, on a machine that has no time for it."""
    monkeypatch.setattr(link, "TURN_S", 0.01)
    root.mkdir()
    turn = take_turn(root)
    assert turn is not None
    words = [sys.executable, "-c", _BEGINS, str(root), OWNER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as begins:
        assert begins.stdout is not None and begins.stdout.readline() == b"locked\n"
        with pytest.raises(tidelog.Unreachable):
            tidelog.connect(root, timeout=0.5)
        assert not started
        begins.kill()
    with tidelog.connect(root) as db:
        assert db.incr("n") == 1
    assert started
    turn.close()


def test_an_owner_that_cannot_start(tmp_path: Path) -> None:
    root = tmp_path / "notes"
    root.mkdir()
    (root / "todo.txt").write_text("milk")
    with pytest.raises(tidelog.NotAStore, match="could not start"):
        tidelog.connect(root)
    with pytest.raises(tidelog.NotAStore):
        tidelog.connect(root / "todo.txt")
    with pytest.raises(tidelog.CannotOpen):
        tidelog.connect(tmp_path / "missing" / "store")
    assert sorted(os.listdir(tmp_path)) == ["notes"]


def test_an_owner_that_hangs(root: Path) -> None:
    with tidelog.connect(root) as db:
        db.set("k", "v")
        pid = owner_of(root)
        db._link.timeout = 0.3
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(tidelog.Unreachable, match="did not answer in time"):
                db.get("k")
            with pytest.raises(tidelog.Unreachable):
                tidelog.connect(root, timeout=0.3)
        finally:
            os.kill(pid, signal.SIGCONT)
        db._link.timeout = 30.0
        assert db.get("k") == b"v"


@pytest.mark.slow
def test_an_idle_owner_ends(root: Path) -> None:
    """The owner of this test is idle after a second; that of a user, after a minute."""
    command = [sys.executable, "-m", "tidelog.client.owner", str(root), "idle-exit=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        with tidelog.connect(root) as db:
            assert db.ping() and owner_of(root) == process.pid
        assert process.wait(60) == 0
    assert not is_running(process.pid)
    assert not (root / SHARED).exists()
    assert "no client was connected" in (root / SHARED_LOG).read_text()


def test_an_older_owner_goes_when_nobody_uses_it(root: Path) -> None:
    code = (
        "from tidelog.client import owner; from tidelog.server.commands import yielding; "
        f"yielding.VERSION = b'0.0.9'; owner.main([{str(root)!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        with addresses_of(root)[0].dial(SHARED, 60) as used:
            used.sendall(b"PING\r\n")
            assert used.recv(100) == b"+PONG\r\n"
            with tidelog.connect(root) as db:  # another client uses it, so it stays
                db.set("k", "v")
                assert owner_of(root) == process.pid
        with tidelog.connect(root) as db:
            until(lambda: int(db.info("clients")["connected_clients"]) == 1, "clients stay")
        connected: list[int] = []

        def replaced() -> bool:
            with tidelog.connect(root) as db:
                assert db.get("k") == b"v"
                connected.append(owner_of(root))
            return connected[-1] != process.pid

        until(replaced, "the older owner stays")
        assert process.wait(60) == 0
    assert "stopping, because a client is newer: " in (root / SHARED_LOG).read_text()


def test_only_an_older_owner_goes(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store") as db, tidelog.serve(db, port=0) as serving:
        client: Any = redis.Redis(port=serving.port)
        with client:
            for version in ("0.0", "0.1", "99", "1.2.3.dev4"):
                assert client.execute_command("TIDELOG", "YIELD", version) == 0
            for version in ("", "x", "-1"):
                with pytest.raises(redis.ResponseError, match="is not a version"):
                    client.execute_command("TIDELOG", "YIELD", version)


def test_open_waits_for_the_lock(tmp_path: Path) -> None:
    root = tmp_path / "store"
    db = tidelog.open(root)
    with pytest.raises(tidelog.StoreLocked):
        tidelog.open(root, lock_timeout=0.05)
    opened: list[Any] = []
    thread = threading.Thread(target=lambda: opened.append(tidelog.open(root, lock_timeout=60)))
    thread.start()
    db.close()
    thread.join(60)
    assert opened[0].ping()
    opened[0].close()
    with pytest.raises(tidelog.DataError, match="lock_timeout"):
        tidelog.open(root, lock_timeout=-1)
