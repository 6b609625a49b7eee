"""WAIT and WAITAOF over sockets, on disks that are slow, broken or fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests import inside
from tests.oracle.wire import error, is_error
from tests.server.conftest import Running, Start
from tests.server.wire import Client, calls, connect
from tests.until import until

import tidelog
from tidelog.disk.real import RealFile


class Fsyncs:
    """The fsyncs of logs: held back while `gate` is held, broken while `failing`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Lock()
        self.count = 0
        self.failing = False
        sync = RealFile.fdatasync

        def fdatasync(file: RealFile) -> None:
            with self.gate:
                if self.failing:
                    raise OSError(5, "the disk is broken")
                sync(file)
                self.count += 1

        monkeypatch.setattr(RealFile, "fdatasync", fdatasync)


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with closing(connect(server.port)) as client:
        yield client


@contextmanager
def blocked(client: Client, running: Running, command: str) -> Iterator[int]:
    """Within, the client waits in a command; its ID."""
    (id_,) = calls(client, "CLIENT ID")
    client.begin(*command.encode().split())
    until(lambda: running.server.blocked == 1)
    yield id_


def test_nobody_follows(server: Running, client: Client) -> None:
    assert calls(client, "WAIT 0 0", "WAIT -5 0", "WAIT 1 1") == [0, 0, 0]
    began = time.monotonic()
    assert calls(client, "WAIT 3 80") == [0]
    assert 0.07 < time.monotonic() - began < 20
    assert server.server.blocked == 0


def test_what_was_never_written_is_on_the_disk(client: Client) -> None:
    assert calls(client, "WAITAOF 0 0 0", "WAITAOF 1 0 0", "WAITAOF 1 1 10") == [[1, 0]] * 3


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_waitaof_waits_for_the_disk_under_every_policy(
    start: Start, fsync: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(fsync=fsync)
    log = inside.log(running.db)
    with closing(connect(running.port)) as client:
        calls(client, "XADD a * x y", "WAITAOF 1 0 0")
        fsyncs = Fsyncs(monkeypatch)
        with fsyncs.gate:
            client.begin(b"XADD", b"a", b"*", b"x", b"y")
            client.begin(b"WAITAOF", b"1", b"0", b"0")
            until(lambda: running.server.blocked == 1)
            if fsync != "always":  # else the reply of the XADD waits for the same sync
                assert isinstance(client.receive(), bytes)
            assert client.arrived() == []
            assert log.synced_lsn < log.next_lsn - 1
        if fsync == "always":
            client.receive()
        assert client.receive() == [1, 0]
        assert log.synced_lsn == log.next_lsn - 1
        assert fsyncs.count >= 1


def test_only_what_this_connection_wrote_counts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as writer, closing(connect(running.port)) as other:
        calls(writer, "XADD a 1-1 x y", "WAITAOF 1 0 0")
        calls(other, "XADD a 2-1 x y", "WAITAOF 1 0 0")
        fsyncs = Fsyncs(monkeypatch)
        with fsyncs.gate:
            calls(writer, "XADD a 3-1 x y")
            assert calls(other, "WAITAOF 1 0 0", "XLEN a") == [[1, 0], 3]
            assert calls(writer, "WAITAOF 0 0 0", "WAITAOF 1 0 30") == [[0, 0], [0, 0]]
        assert calls(writer, "WAITAOF 1 0 0") == [[1, 0]]


@pytest.mark.parametrize(
    "write",
    [
        "XREADGROUP GROUP g c STREAMS a >",
        "XGROUP CREATECONSUMER a g c",
        "MULTI;XADD a 9-1 x y;EXEC",
        "XADD a * x y;XADD a * x y;XADD a * x y",
        "DEL a",
    ],
)
def test_everything_that_is_logged_counts(
    start: Start, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as client:
        calls(client, "XADD a 1-1 x y", "XGROUP CREATE a g 0", "WAITAOF 1 0 0")
        fsyncs = Fsyncs(monkeypatch)
        with fsyncs.gate:
            calls(client, *write.split(";"))
            assert calls(client, "WAITAOF 1 0 10") == [[0, 0]]
        assert calls(client, "WAITAOF 1 0 0") == [[1, 0]]


def test_a_delivery_to_a_blocked_reader_counts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as reader, closing(connect(running.port)) as writer:
        calls(reader, "XGROUP CREATE a g 0 MKSTREAM", "WAITAOF 1 0 0")
        fsyncs = Fsyncs(monkeypatch)
        with fsyncs.gate:
            reader.begin(*b"XREADGROUP GROUP g c BLOCK 0 STREAMS a >".split())
            until(lambda: running.server.blocked == 1)
            calls(writer, "XADD a 1-1 x y")
            reader.receive()
            assert calls(reader, "WAITAOF 0 0 0") == [[0, 0]]


def test_followers_are_waited_for_until_the_time_is_up(start: Start) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as client:
        calls(client, "XADD a 1-1 x y", "WAITAOF 1 0 0")
        began = time.monotonic()
        assert calls(client, "WAITAOF 1 1 60") == [[1, 0]]
        assert time.monotonic() - began > 0.05
        calls(client, "XADD a 2-1 x y")
        assert calls(client, "WAITAOF 0 1 20") == [[0, 0]]  # nobody asked for a sync


@pytest.mark.parametrize("command, reply", [("WAIT 1 0", 0), ("WAITAOF 1 2 0", [1, 0])])
def test_client_unblock(server: Running, client: Client, command: str, reply: object) -> None:
    with closing(connect(server.port)) as other:
        with blocked(client, server, command) as id_:
            assert b"blocked_clients:1\r\n" in calls(other, "INFO clients")[0]
            assert calls(other, f"CLIENT UNBLOCK {id_}") == [1]
            assert client.receive() == reply
        with blocked(client, server, command) as id_:
            assert calls(other, f"CLIENT UNBLOCK {id_} ERROR") == [1]
            assert client.receive() == error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK")
        assert calls(other, f"CLIENT UNBLOCK {id_}") == [0]
    assert server.server.blocked == 0
    assert calls(client, "PING") == [("+", b"PONG")]


def test_what_was_sent_behind_it_comes_behind_it(server: Running, client: Client) -> None:
    client.send([[b"WAIT", b"1", b"30"], [b"PING"], [b"WAIT", b"1", b"1"], [b"ECHO", b"x"]])
    assert [client.receive() for _ in range(4)] == [0, ("+", b"PONG"), 0, b"x"]


def test_a_client_that_leaves_does_not_wait(server: Running) -> None:
    for command in ("WAIT 1 0", "WAITAOF 1 1 0"):
        with closing(connect(server.port)) as client, blocked(client, server, command):
            pass
        until(lambda: server.server.blocked == 0 and not server.server.sessions)


def test_in_a_transaction_nothing_waits(start: Start) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as client:
        words = ("MULTI", "XADD a 1-1 x y", "WAIT 1 0", "WAITAOF 1 1 0", "EXEC")
        assert calls(client, *words)[-1] == [b"1-1", 0, [0, 0]]
        assert calls(client, "WAITAOF 1 0 0") == [[1, 0]]


def test_a_sync_that_fails_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(fsync="no")
    with closing(connect(running.port)) as client:
        calls(client, "XADD a 1-1 x y", "WAITAOF 1 0 0")
        Fsyncs(monkeypatch).failing = True
        _, reply = calls(client, "XADD a 2-1 x y", "WAITAOF 1 0 0")
        assert is_error(reply) and b"the disk is broken" in reply[1]
    running.serving.close()
    with pytest.raises(tidelog.StorePoisoned, match="never confirmed"):
        running.db.close()


def test_a_store_that_was_rebuilt_does_not_wait_for_what_was_lost(
    server: Running, client: Client
) -> None:
    calls(client, "XADD a 1-1 x y")
    session = next(iter(server.server.sessions.values()))
    session.wrote_lsn += 1000  # of units that another log had
    assert calls(client, "WAITAOF 1 0 2000") == [[1, 0]]


# fmt: off
@pytest.mark.parametrize("command, reply", [
    ("WAITAOF 2 0 0", b"ERR value is out of range, value must between 0 and 1"),
    ("WAITAOF -1 0 0", b"ERR value is out of range, value must between 0 and 1"),
    ("WAITAOF a 0 0", b"ERR value is not an integer or out of range"),
    ("WAITAOF 1 -1 0", b"ERR value is out of range, must be positive"),
    ("WAITAOF 1 a 0", b"ERR value is out of range, must be positive"),
    ("WAITAOF 1 0 a", b"ERR timeout is not an integer or out of range"),
    ("WAITAOF 1 0 -1", b"ERR timeout is negative"),
    ("WAITAOF 1 0 9223372036854775807", b"ERR timeout is out of range"),
    ("WAIT 1 9223372036854775807", b"ERR timeout is out of range"),
    ("WAITAOF 1 0", b"ERR wrong number of arguments for 'waitaof' command"),
])
# fmt: on
def test_bad_arguments(client: Client, command: str, reply: bytes) -> None:
    assert calls(client, command) == [error(reply)]
