"""Clients that ask for much, or do not read: what is done for them, and when the others get their turn.

Nothing is timed: commands are counted, and turns.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from tests.oracle.wire import encode, is_error
from tests.server.conftest import Start
from tests.server.loop import in_one_turn
from tests.server.wire import Client
from tests.until import until

from tidelog.server import connection as module
from tidelog.server.connection import Connection

Connect = Callable[..., Client]
ENTRIES = 20
PING = encode([b"PING"])


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a port; a client that takes few bytes has a small `receive_bytes`."""
    with ExitStack() as closing:

        def begin(port: int, receive_bytes: int = 0) -> Client:
            link = closing.enter_context(socket.socket())
            if receive_bytes:  # before it connects, or the kernel keeps what it offered
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            link.settimeout(60)
            link.connect(("127.0.0.1", port))
            return Client(link)

        yield begin


def calls(client: Client, name: str) -> int:
    text = client.call(b"INFO", b"commandstats").decode()
    line = next((line for line in text.split() if line.startswith(f"cmdstat_{name}:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


def of(running: Any, client: Client) -> Connection:
    host, port = client._link.getsockname()
    found: list[Connection] = []

    def look() -> list[Connection]:
        for session in list(running.server.sessions.values()):
            if session.connection.addr == f"{host}:{port}":
                found.append(session.connection)
        return found

    until(look, "it is not connected")
    return found[0]


@pytest.fixture
def turns_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set how many seconds a turn may take."""

    def set_length(seconds: float) -> None:
        monkeypatch.setattr("tidelog.server.turns.TURN_S", seconds)

    return set_length


def test_no_command_is_begun_while_replies_are_not_read(start: Start, connect: Connect) -> None:
    running = start()
    running.db.xadd_many("s", [{"f": "x" * 10_000}] * ENTRIES)
    reader, other = connect(running.port, 4096), connect(running.port)
    reader.raw(encode([b"XRANGE", b"s", b"-", b"+"]) * 200)
    until(lambda: calls(other, "xrange") > 0)
    until(lambda: not of(running, reader)._writable)
    began = calls(other, "xrange")
    assert began < 200
    for _ in range(5):
        other.pipeline([[b"PING"]])
    assert calls(other, "xrange") == began
    most = (64 << 10) + (256 << 10) + 2 * ENTRIES * 10_000
    assert of(running, reader).unread_bytes < most < module.WAITING_BYTES_MAX
    for _ in range(200):  # and it gets all of them when it reads
        assert len(reader.receive()) == ENTRIES
    assert calls(other, "xrange") == 200


def test_a_turn_is_shared(
    start: Start,
    connect: Connect,
    turns_of: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With turns that are over at once, each client gets a few commands in each, and nobody waits for a pipeline."""
    turns_of(0.0)
    running = start()
    ran: list[tuple[Connection, int]] = []
    run = Connection.run

    def counted(self: Connection, commands: list[list[bytes]]) -> None:
        before = len(self.out)
        run(self, commands)
        ran.append((self, (len(self.out) - before) // 2))

    monkeypatch.setattr(Connection, "run", counted)
    greedy = [connect(running.port) for _ in range(3)]
    polite = connect(running.port)
    clients = [*greedy, polite]
    assert [client.call(b"PING") for client in clients] == [("+", b"PONG")] * 4
    connections = [of(running, client) for client in clients]
    ran.clear()
    in_one_turn(running, clients, [PING * 1000] * len(greedy) + [PING])
    for client in greedy:
        assert [client.receive() for _ in range(1000)]
    assert polite.receive() == ("+", b"PONG")
    assert 0 < max(count for _, count in ran) <= module.LOOK
    turns = [connection for connection, _ in ran]
    assert turns.index(connections[-1]) <= len(greedy)  # nobody had two before it had one
    for connection in connections[:-1]:
        assert turns.count(connection) >= 1000 // module.LOOK


@pytest.mark.parametrize("size", [100, 5_000, 100_000])
def test_what_is_put_off_keeps_its_order(
    start: Start, connect: Connect, turns_of: Callable[[float], None], size: int
) -> None:
    turns_of(0.0)
    running = start()
    clients = [connect(running.port) for _ in range(4)]
    commands = []
    for number in range(1500):
        commands.append([b"RPUSH" if number % 50 == 49 else b"ECHO", b"%d" % number])
        commands.append([b"XADD", b"s", b"*", b"n", b"%d" % number])
    data = b"".join(map(encode, commands))
    for at in range(0, len(data), size):
        for client in clients:
            client.raw(data[at : at + size])
    for client in clients:
        replies = [client.receive() for _ in commands]
        told = [reply for reply in replies[::2] if not is_error(reply)]
        assert told == [b"%d" % number for number in range(1500) if number % 50 != 49]
        added = replies[1::2]
        assert [running.db.xrange("s", id, id)[0][1][b"n"] for id in added[::100]] == [
            b"%d" % number for number in range(0, 1500, 100)
        ]
    assert running.db.xlen("s") == 4 * 1500


def test_what_was_put_off_runs_though_the_client_leaves(
    start: Start, connect: Connect, turns_of: Callable[[float], None]
) -> None:
    turns_of(0.0)
    running = start()
    clients = [connect(running.port) for _ in range(4)]
    for client in clients:
        client.raw(encode([b"XADD", b"s", b"*", b"f", b"v"]) * 1000)
        client._link.shutdown(socket.SHUT_WR)
    for client in clients:
        assert client.rest().count(b"$") == 1000
    assert running.db.xlen("s") == 4000


def test_what_waits_to_be_taken_apart_is_bounded(
    start: Start, connect: Connect, turns_of: Callable[[float], None]
) -> None:
    turns_of(0.0)
    running = start()
    running.db.xadd("s", {"f": "x" * 10_000})
    client = connect(running.port, 4096)
    connection = of(running, client)
    client._link.settimeout(0)
    command = encode([b"XRANGE", b"s", b"-", b"+"])
    sent = 0

    def is_no_longer_read() -> bool:
        nonlocal sent
        with suppress(BlockingIOError):
            while True:  # what is left of a command, and as many as the kernel takes
                sent += client._link.send((command * 1001)[sent % len(command) :])
        return not connection._readable

    until(is_no_longer_read)
    assert connection.late_bytes + connection.queue_bytes < 20 << 20
