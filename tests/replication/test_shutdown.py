"""A leader that is told to stop waits for its followers: a clean stop leaves nothing that they could have got."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.oracle.wire import OK, is_error
from tests.replication.conftest import Pair
from tests.replication.processes import Node, caught_up, ended
from tests.replication.stores import caught_up as has_all
from tests.replication.stores import last_lsn
from tests.server.durability.load import Load, check
from tests.server.wire import Client, calls, connect
from tests.until import until

import tidelog

ABORTED = b"ERR Errors trying to SHUTDOWN. Check logs."


class Lagging:
    """A leader with a record that its follower lacks, because the proxy between them passes nothing."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        # No link ends because a busy machine keeps it silent.
        pair.client().config_set("repl-timeout", 3600)
        self.follower, _ = pair.follower(repl_timeout=3600)
        pair.db.xadd("orders", {"n": 1})
        has_all(pair.db, self.follower)
        pair.proxy.open.clear()
        pair.db.xadd("orders", {"n": 2})
        self.clients: list[Client] = []
        self.client = self.connect()

    def connect(self) -> Client:
        """A client that is closed at the end."""
        self.clients.append(connect(self.pair.port))
        return self.clients[-1]

    def begin(self, words: str = "SHUTDOWN") -> Client:
        """Send SHUTDOWN over a connection of its own, and return when the server waits."""
        client = self.connect()
        client.begin(*words.encode().split())
        until(lambda: self.pair.server.paused, "the server does not wait")
        return client

    @property
    def stopped(self) -> bool:
        return not self.pair.serving._thread.is_alive()


@pytest.fixture
def lagging(pair: Pair) -> Iterator[Lagging]:
    made = Lagging(pair)
    yield made
    for client in made.clients:
        client.close()
    made.pair.proxy.open.set()


def test_shutdown_waits_until_followers_have_all(lagging: Lagging) -> None:
    client = lagging.begin()
    assert calls(lagging.client, "PING", "XLEN orders") == [("+", b"PONG"), 2]
    assert not lagging.stopped and last_lsn(lagging.follower) == 2
    lagging.pair.proxy.open.set()
    assert client.rest() == b""
    until(lambda: lagging.stopped)
    assert last_lsn(lagging.follower) == last_lsn(lagging.pair.db) == 3


def test_writes_wait_and_go_on_after_an_abort(lagging: Lagging) -> None:
    client = lagging.begin()
    other = lagging.connect()
    other.begin(b"XADD", b"others", b"9-9", b"n", b"3")
    until(lambda: lagging.pair.server._pause.postponed)
    assert calls(lagging.client, "XLEN orders", "SHUTDOWN ABORT") == [2, OK]
    reply = client.receive()
    assert is_error(reply) and reply == ("-", ABORTED)
    assert other.receive() == b"9-9"
    (reply,) = calls(lagging.client, "SHUTDOWN ABORT")
    assert reply == ("-", b"ERR No shutdown in progress.")
    assert calls(lagging.client, "XLEN others") == [1]


def test_now_does_not_wait(lagging: Lagging) -> None:
    waiting = lagging.begin()
    lagging.client.begin(b"SHUTDOWN", b"NOW")
    assert lagging.client.rest() == waiting.rest() == b""
    until(lambda: lagging.stopped)
    assert last_lsn(lagging.follower) == 2


def test_it_gives_up_after_the_timeout(lagging: Lagging, caplog: pytest.LogCaptureFixture) -> None:
    assert calls(lagging.client, "CONFIG SET shutdown-timeout 1") == [OK]
    lagging.client.begin(b"SHUTDOWN")
    assert lagging.client.rest() == b""
    until(lambda: lagging.stopped)
    assert "stopping although the follower" in caplog.text


def test_without_a_timeout_nothing_waits(lagging: Lagging) -> None:
    assert calls(lagging.client, "CONFIG SET shutdown-timeout 0") == [OK]
    lagging.client.begin(b"SHUTDOWN")
    assert lagging.client.rest() == b""
    until(lambda: lagging.stopped)


def test_a_follower_that_goes_is_not_waited_for(lagging: Lagging) -> None:
    client = lagging.begin()
    lagging.follower.close()
    lagging.pair.proxy.cut()
    lagging.pair.proxy.open.set()
    assert client.rest() == b""


def test_the_owner_s_close_waits(lagging: Lagging) -> None:
    """And no client can abort it, since the owner's thread would wait for ever."""
    closing = threading.Thread(target=lagging.pair.serving.close)
    closing.start()
    until(lambda: lagging.pair.server.paused)
    (reply,) = calls(lagging.client, "SHUTDOWN ABORT")
    assert is_error(reply) and closing.is_alive()
    lagging.pair.db.xadd("orders", {"n": 3})  # the owner goes on
    lagging.pair.proxy.open.set()
    closing.join(60)
    assert not closing.is_alive() and last_lsn(lagging.follower) >= 3


def test_a_store_that_is_closed_ends_the_wait(lagging: Lagging) -> None:
    client = lagging.begin()
    lagging.pair.db.close()
    assert client.rest() == b""


def test_sigterm_under_load(tmp_path: Path) -> None:
    """The leader's process is told to end while clients write. All that was answered is on the follower."""
    leader = Node(tmp_path / "leader", "shutdown-timeout=50")
    follower = Node(tmp_path / "follower")
    load = Load(4)
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        caught_up(leader, follower)
        load.start(leader.port, 300)
        assert load.enough.wait(60)
        leader.end()
        load.stop()
        with follower.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        follower.end()
    with tidelog.open(follower.root) as db:
        check(db, load.promised)


def test_a_second_signal_ends_the_wait(tmp_path: Path) -> None:
    leader = Node(tmp_path / "leader", "shutdown-timeout=3600", "repl-timeout=3600")
    follower = Node(tmp_path / "follower")
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        caught_up(leader, follower)
        follower.send(signal.SIGSTOP)
        try:
            with leader.client() as client:
                client.xadd("orders", {"n": 1})
                leader.send(signal.SIGTERM)
                until(lambda: b"waiting" in leader.errors.read_bytes())
                assert client.ping()
                leader.send(signal.SIGTERM)
                until(lambda: leader.returned() == 0)
        finally:
            follower.send(signal.SIGCONT)
