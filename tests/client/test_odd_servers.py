"""connect to a path where something else than a sound owner is found: one clear error, and no process left behind."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.client.conftest import Bench
from tests.client.owners import ended_owner, owner_of, owners
from tests.server.clients.real import real_redis
from tests.until import until

import tidelog
from tidelog.aof import errors as aof
from tidelog.aof.layout import SHARED
from tidelog.client.errors import error_of
from tidelog.disk import unix_socket
from tidelog.engine.errors import CommandError
from tidelog.server import errors
from tidelog.store.errors import FULL


@contextmanager
def listening(root: Path, said: bytes) -> Iterator[None]:
    """A process that is no server listens on the socket of a store, and says this to each command."""
    root.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(root / SHARED))
        door.listen()

        def answer() -> None:
            while True:
                try:
                    link, _ = door.accept()
                except OSError:
                    return  # the end of the test
                with link, suppress(OSError):  # the client may be gone already
                    if link.recv(1 << 16):
                        link.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        door.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RESP"), (b"", "closed the connection")],
)
def test_something_else_listens(tmp_path: Path, said: bytes, error: str) -> None:
    root = tmp_path / "store"
    with listening(root, said), pytest.raises(tidelog.Unreachable, match=error):
        tidelog.connect(root, timeout=0.1)
    assert not owners(root) and sorted(os.listdir(root)) == [SHARED]


def test_another_user_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(unix_socket, "peer_uid", lambda link: 54321)
    refused = pytest.raises(tidelog.CannotOpen, match="belongs to another user")
    with listening(root, b":0\r\n"), refused:
        tidelog.connect(root)
    assert not owners(root)


def test_two_names_of_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    other = tmp_path / "other"
    other.symlink_to(root)
    monkeypatch.chdir(tmp_path)
    with ended_owner(root), tidelog.connect(root) as one:
        pid = owner_of(root)
        one.set("k", "v")
        for name in ("store", "./store/", other, f"{tmp_path}/x/../store", os.fsencode(root)):
            where: Any = name
            (tmp_path / "x").mkdir(exist_ok=True)
            with tidelog.connect(where) as two:
                assert two.get("k") == b"v" and owner_of(root) == pid
        with pytest.raises(tidelog.StoreLocked):
            tidelog.open(other)


def test_the_errors_of_a_server_become_those_of_the_store() -> None:
    for error in (
        *(tidelog.OutOfSpace("full"), tidelog.StorePoisoned("bad"), tidelog.OutcomeUnknown("x")),
        *(tidelog.StoreFull(FULL + "it has 9 bytes"), tidelog.ResponseError("MISCONF x", "MISCONF")),
        *(tidelog.UnitTooLarge(str(aof.UnitTooLarge(9, 8))), tidelog.NotStored("no"), tidelog.QueueFull("full")),
        tidelog.NotReplicated(1, 2),
        *(tidelog.TokenLate("TIMEOUT it is late"), tidelog.TokenLost("LOST it is gone")),
    ):  # fmt: skip
        found = error_of(CommandError(errors.line(error)))
        assert type(found) is type(error), (error, found)
        assert str(found) in str(error) or str(error) in str(found)


def test_what_another_server_says_of_its_disk_is_no_quota(tmp_path: Path) -> None:
    """Redis refuses writes with MISCONF, too, while it cannot save."""
    with real_redis(tmp_path) as port, redis.Redis(port=port) as admin:
        (tmp_path / "dump.rdb").mkdir()
        admin.config_set("save", "3600 1")
        admin.bgsave()
        until(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")
        with pytest.raises(redis.ResponseError, match="MISCONF") as refused:
            admin.set("k", "v")
        admin.config_set("save", "")  # it ends only if it need not save, or can
    found = error_of(CommandError(str(refused.value).encode()))
    assert type(found) is tidelog.ResponseError and found.code == "MISCONF"


def test_no_descriptors_are_left(bench: Bench) -> None:
    """A process at its limit gets an error that says so, and works again when it has some."""
    with bench.connect() as db:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            with pytest.raises(
                (tidelog.Unreachable, tidelog.CannotOpen), match="oo many open files"
            ):
                tidelog.connect(bench.root, timeout=0.1)
            assert db.ping()  # on the connection that it has
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with bench.connect() as other:
            assert other.ping()


def test_a_worker_is_told_when_an_idle_connection_was_ended(bench: Bench) -> None:
    """So that it beats at once: on the other side its connection, and its lease with it, may have ended long ago."""
    url = f"redis://127.0.0.1:{bench.serving.port}"
    told: list[str] = []
    with tidelog.connect(url) as db, bench.connect() as other:
        db._link.broke = lambda: told.append("broke")
        assert db.ping()
        assert other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") >= 1
        until(lambda: other.execute_command("CLIENT", "LIST").count(b"addr=") == 2)  # and laddr=
        assert db.ping()
    assert told == ["broke"]


def test_the_disk_of_the_owner_is_full(tmp_path: Path) -> None:
    """The owner may write files of 2 MiB at most, which is an error as on a full disk."""
    root = tmp_path / "store"
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20)); "
        f"from tidelog.client import owner; owner.main([{str(root)!r}, 'appendfsync=no'])"
    )
    with (
        ended_owner(root),
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None and process.stdout.readline()
        with tidelog.connect(root) as db:
            queue = db.queue("q", codec="bytes")
            put: list[str] = []
            with pytest.raises(tidelog.NotStored) as caught:
                for _ in range(100):
                    put.append(queue.put(b"v" * 100_000))
            assert "File too large" in str(caught.value)
            assert db.ping() and len(queue) == len(put)
        process.terminate()
        process.wait(60)
