"""Peers that mean no good, or are broken: an error or a disconnect, bounded memory, and others are unharmed."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
from collections.abc import Iterator

import pytest
from tests.server.conftest import Running, Start
from tests.server.wire import calls, connect
from tests.until import until

from tidelog.server import reserve


@pytest.fixture
def others(server: Running) -> Iterator[None]:
    """Somebody else who is connected all the while, and is served at the end as at the beginning."""
    other = connect(server.port)
    assert calls(other, "XADD witness 1-1 a b") == [b"1-1"]
    yield
    assert calls(other, "XLEN witness", "PING") == [1, ("+", b"PONG")]
    other.close()


def resident() -> int:
    """Bytes of memory of this process, the server's among them."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    "data",
    [
        b"*2147483647\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n" * 10_000,
        b"*x\r\n",
        b'SET "unbalanced\r\n',
        b"\x00\xff\xfe" * 30_000,
        b"A" * 70_000,
        b"*" * 70_000,
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_protocol_ends_the_connection(
    server: Running, others: None, data: bytes
) -> None:
    client = connect(server.port)
    before = resident()
    with contextlib.suppress(OSError):
        client.raw(data)
        client.raw(b"\r\n")
    answer = client.rest()
    assert (
        answer.startswith(b"-ERR Protocol error") or answer == b"" or b"unknown command" in answer
    )
    assert resident() - before < 32 << 20
    client.close()


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nSET left behind\r\n",
        b"GET /\r\nHost: localhost:6379\r\n\r\nXADD left * a b\r\nXADD left * a b\r\n",
        b"*1\r\n$4\r\npost\r\n*3\r\n$3\r\nSET\r\n$4\r\nleft\r\n$1\r\n1\r\n",
    ],
)
def test_a_browser_sends_no_commands(server: Running, others: None, data: bytes) -> None:
    """Any web page can have the browser of who looks at it send such bytes to a port of that machine."""
    client = connect(server.port)
    client.raw(data)
    assert b"unknown command" not in client.rest()
    client.close()
    assert not server.db.exists("left")


def test_who_speaks_http_does_not_fill_the_log(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        client = connect(server.port)
        client.raw(b"POST / HTTP/1.1\r\n\r\n")
        assert client.rest() == b""
        client.close()
    assert caplog.text.count("sent HTTP") == 1


def test_garbage(server: Running, others: None) -> None:
    seed = 7
    print(f"seed {seed}")
    pick = random.Random(seed)
    alphabet = [b"*", b"$", b"\r\n", b"1", b"3", b"-1", b"XADD", b"s", b" ", b'"', b"\x00", b"PING"]
    for _ in range(150):
        client = connect(server.port)
        with contextlib.suppress(OSError):
            for _ in range(pick.randrange(1, 6)):
                client.raw(b"".join(pick.choices(alphabet, k=pick.randrange(1, 60))))
        client.close()


def test_half_a_command_and_silence(start: Start) -> None:
    running = start(timeout=1)
    client = connect(running.port)
    client.raw(b"*3\r\n$4\r\nXADD\r\n$1")
    assert client.rest() == b""
    client.close()


def test_who_listens_is_not_idle(start: Start) -> None:
    """As Redis: who asks for messages, and sends nothing more, is not disconnected by `timeout`."""
    running = start()
    monitor, subscriber = connect(running.port), connect(running.port)
    assert subscriber.call(b"SUBSCRIBE", b"c") == [b"subscribe", b"c", 1]
    assert monitor.call(b"MONITOR") == ("+", b"OK")
    config = running.server.config
    running.server.loop.call_soon_threadsafe(config.set, [(b"timeout", b"1")])
    idle = connect(running.port)
    assert idle.rest() == b""  # it came last, and was idle for no longer than the others
    running.server.loop.call_soon_threadsafe(config.set, [(b"timeout", b"0")])
    until(lambda: not config["timeout"])
    client = connect(running.port)
    assert client.call(b"PUBLISH", b"c", b"x") == 1
    assert monitor.receive()[1].split()[-1] == b'"x"'
    for each in (monitor, subscriber, idle, client):
        each.close()


def test_one_that_never_reads(server: Running, others: None) -> None:
    """It asks and asks and takes no answer: the server stops reading from it, and what it keeps is bounded."""
    server.db.set("big", b"x" * (1 << 20))
    client = connect(server.port)
    client._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client._link.settimeout(0.5)
    before = resident()
    sent = 0
    with contextlib.suppress(TimeoutError):
        for _ in range(20_000):
            client.raw(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n" * 100)
            sent += 100
    assert sent < 20_000 * 100
    assert resident() - before < 96 << 20
    client.close()


def test_one_that_sends_while_it_is_blocked(server: Running, others: None) -> None:
    client = connect(server.port)
    client.raw(
        b"*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n$\r\n"
    )
    client._link.settimeout(0.5)
    before = resident()
    with contextlib.suppress(TimeoutError):
        for _ in range(400):
            client.raw(b"*1\r\n$4\r\nPING\r\n" * 5000)
    assert resident() - before < 96 << 20
    client.close()


def test_passwords(start: Start) -> None:
    running = start(requirepass="secret")
    client = connect(running.port)
    for _ in range(50):
        answer = calls(client, "AUTH wrong")[0]
        assert answer[1].startswith(b"WRONGPASS")
    for command in ("PING", "XADD s 1-1 a b", "CONFIG GET *", "MULTI", "SUBSCRIBE c", "INFO"):
        assert calls(client, command)[0] == ("-", b"NOAUTH Authentication required.")
    assert calls(client, "AUTH secret", "PING") == [("+", b"OK"), ("+", b"PONG")]
    client.close()
    # Before it has said who it is, a peer may send little.
    client = connect(running.port)
    client.raw(b"*11\r\n")
    assert b"unauthenticated multibulk length" in client.rest()
    client.close()
    client = connect(running.port)
    client.raw(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n")
    assert b"unauthenticated bulk length" in client.rest()
    client.close()


def test_many_connections(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond maxclients are told so and closed; when some leave, others may come."""
    monkeypatch.setattr(reserve, "TRIAL_S", 0.01)
    running = start(maxclients=50)
    clients = [connect(running.port) for _ in range(60)]
    for client in clients[:50]:
        assert calls(client, "PING") == [("+", b"PONG")]
    for client in clients[50:]:
        assert client.rest() == b"-ERR max number of clients reached\r\n"
    for client in clients:
        client.close()

    def let_in() -> bool:
        with contextlib.closing(connect(running.port)) as client:
            try:
                return calls(client, "PING") == [("+", b"PONG")]
            except ConnectionError:
                return False

    until(let_in, "nobody is let in again")


@pytest.mark.slow
def test_ten_thousand_connections(start: Start) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        running = start(maxclients=10_000)
        wanted = min(10_500, (hard - 200) // 2)
        clients = [connect(running.port) for _ in range(wanted)]
        assert calls(clients[0], "PING") == [("+", b"PONG")]
        assert calls(clients[9_000 if wanted > 10_000 else -1], "PING") == [("+", b"PONG")]
        for client in clients[10_000:]:
            assert b"max number of clients" in client.rest()
        for client in clients:
            client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
