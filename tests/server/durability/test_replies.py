"""Replies of a server: none is lost, doubled or early, whatever fails, waits or hangs up."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests import inside
from tests.oracle.wire import encode
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401
from tests.server.durability.faulty_disk import full, simulated
from tests.server.loop import in_one_turn
from tests.server.wire import calls
from tests.until import until

import tidelog
import tidelog.testing
from tidelog.aof.log import Log
from tidelog.server import serving, turns
from tidelog.server.config.config import ConfigError
from tidelog.server.connection import Connection

ADD = encode([b"XADD", b"s", b"*", b"a", b"1"])


def soon(running: Running, work: Callable[[], Any]) -> None:
    """Run something in the loop's thread, and wait for it."""

    async def call() -> None:
        work()

    asyncio.run_coroutine_threadsafe(call(), running.server.loop).result(60)


def connection_of(running: Running, client: Any) -> Connection:
    """The server's end of a client's connection."""
    ours = client._link.getsockname()
    addr = f"{ours[0]}:{ours[1]}"
    until(lambda: any(s.connection.addr == addr for s in list(running.server.sessions.values())))
    ends = [s.connection for s in list(running.server.sessions.values())]
    found = next(connection for connection in ends if connection.addr == addr)
    assert isinstance(found, Connection)
    return found


def silent(client: Any, seconds: float = 0.2) -> bool:
    """Whether nothing comes for so long."""
    client._link.settimeout(seconds)
    try:
        client._buffer += client._link.recv(1 << 16)
        return False
    except TimeoutError:
        return True
    finally:
        client._link.settimeout(60)


# --- replies lost, doubled, misordered


@pytest.mark.parametrize("count", [1, 3])
def test_adds_before_what_is_no_protocol(server: Running, count: int) -> None:
    """They were put by for the turn's end, and the connection was closed before it."""
    client = dial(server.port)
    client.raw(ADD * count + b"*x\r\n")
    answer = client.rest()
    assert answer.count(b"\r\n") == 2 * count + 1
    assert answer.endswith(b"-ERR Protocol error: invalid multibulk length\r\n")
    assert server.db.xlen("s") == count


@pytest.mark.parametrize("greedy", [False, True])
def test_nothing_is_read_behind_what_is_no_protocol(server: Running, greedy: bool) -> None:
    """Also if a client has used up its turn's time, so that what it sends is put off."""
    client = dial(server.port)
    client.raw(encode(b"XREAD BLOCK 200 STREAMS s $".split()))
    connection = connection_of(server, client)
    until(lambda: connection.session.busy)
    client.raw(b"*x\r\n")
    until(lambda: connection._failure is not None)
    connection.greedy = greedy
    client.raw(encode([b"PING"]))
    assert client.rest() == b"*-1\r\n-ERR Protocol error: invalid multibulk length\r\n"


def test_quit_while_a_sync_ends() -> None:
    """Withheld replies leave in the turn in which QUIT came: its OK leaves too, before the connection is closed."""
    with simulated("always") as (running, gate):
        server, log = running.server, inside.log(running.db)
        client = dial(running.port)
        calls(client, "XADD s * a 1")
        connection = connection_of(running, client)
        server.turns._synced = lambda error: None  # type: ignore[method-assign]
        client.raw(ADD)
        until(lambda: connection.withheld and log.synced_lsn == log.next_lsn - 1)

        def both() -> None:
            connection.data_received(encode([b"QUIT"]))
            server.turns._release(None)

        soon(running, both)
        answer = client.rest()
        assert answer.endswith(b"\r\n+OK\r\n") and answer.startswith(b"$")


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_half_closed(fsync: str) -> None:
    """A client that ends its side is answered what it had sent, as by Redis; then the connection is closed."""
    with simulated(fsync) as (running, gate):
        for data, lines in (
            (encode([b"PING"]), 1),
            (ADD, 2),
            (ADD * 5 + encode([b"PING"]), 11),
            (encode([b"PING"]) * 20_000, 20_000),
        ):
            client = dial(running.port)
            client.raw(data)
            client._link.shutdown(socket.SHUT_WR)
            assert client.rest().count(b"\r\n") == lines
    with simulated("always") as (running, gate):
        client = dial(running.port)
        calls(client, "XADD s * a 1")
        gate.open.clear()
        client.raw(ADD)
        client._link.shutdown(socket.SHUT_WR)
        assert silent(client)
        gate.open.set()
        assert client.rest().count(b"\r\n") == 2


@pytest.mark.parametrize("command", ["XREAD BLOCK 0 STREAMS s $", "WAIT 1 0"])
def test_half_closed_while_it_blocks(server: Running, command: str) -> None:
    """Nobody is there for what it would be told."""
    client = dial(server.port)
    client.raw(encode(command.encode().split()))
    until(lambda: server.server.blocked == 1)
    client._link.shutdown(socket.SHUT_WR)
    assert client.rest() == b""
    until(lambda: server.server.blocked == 0)


def test_gone_while_it_blocks_behind_garbage(server: Running) -> None:
    client = dial(server.port)
    client.raw(encode(b"XREAD BLOCK 0 STREAMS s $".split()))
    until(lambda: server.server.blocked == 1)
    client.raw(b"*x\r\n")
    time.sleep(0.05)
    client.close()
    until(lambda: server.server.blocked == 0)


def test_half_closed_before_it_blocks(server: Running) -> None:
    client = dial(server.port)
    client.raw(encode(b"WAIT 1 100".split()) + encode(b"XREAD BLOCK 0 STREAMS s $".split()))
    client._link.shutdown(socket.SHUT_WR)
    assert client.rest() == b""  # it was blocked when its end came, and is let go, as by Redis
    until(lambda: server.server.blocked == 0)


def test_a_pause_between_adds_and_the_turns_end(server: Running) -> None:
    """Both wait for the pause's end, and the commands behind them too."""
    client, other = dial(server.port), dial(server.port)
    connection, pausing = connection_of(server, client), connection_of(server, other)

    def turn() -> None:
        connection.data_received(ADD * 2)
        pausing.data_received(encode(b"CLIENT PAUSE 100".split()))

    soon(server, turn)
    client.raw(encode(b"ECHO later".split()))
    first, second, last = (client.receive() for _ in range(3))
    assert last == b"later"
    assert first < second


def test_a_pause_ends_while_the_output_is_full(server: Running) -> None:
    client, other = dial(server.port), dial(server.port)
    connection = connection_of(server, client)
    assert calls(client, "CLIENT PAUSE 600000 WRITE", "ECHO a") == [("+", b"OK"), b"a"]
    client.raw(encode(b"SET k 1".split()) + encode(b"GET k".split()))
    until(lambda: connection.queue)
    soon(server, connection.pause_writing)  # it does not read what it is sent
    assert calls(other, "CLIENT UNPAUSE") == [("+", b"OK")]
    until(lambda: not server.server.paused)
    soon(server, connection.resume_writing)
    assert [client.receive(), client.receive()] == [("+", b"OK"), b"1"]


def test_a_chain_of_sessions_that_wake_each_other(server: Running) -> None:
    clients = [dial(server.port) for _ in range(300)]
    ids = [calls(client, "CLIENT ID")[0] for client in clients]
    for client, after in zip(clients, [*ids[1:], 0]):
        client.send(
            [
                b"XREAD BLOCK 0 STREAMS s $".split(),
                [b"CLIENT", b"UNBLOCK", b"%d" % after],
                [b"PING"],
            ]
        )
    until(lambda: server.server.blocked == 300)
    assert calls(dial(server.port), f"CLIENT UNBLOCK {ids[0]}") == [1]
    for client in clients:
        woken = 0 if client is clients[-1] else 1
        assert [client.receive() for _ in range(3)] == [("*-1",), woken, ("+", b"PONG")]


def test_nothing_is_run_behind_a_kill_of_oneself(server: Running) -> None:
    client = dial(server.port)
    me = calls(client, "CLIENT ID")[0]
    kill = b"CLIENT KILL ID %d SKIPME no" % me
    client.raw(encode(kill.split()) + encode(b"SET k 1".split()))
    assert client.rest() == b":1\r\n"
    assert not server.db.exists("k")


def test_unblocked_while_memory_cannot_be_rebuilt() -> None:
    with simulated("everysec") as (running, gate):
        client, other = dial(running.port), dial(running.port)
        calls(other, "XADD s * a 1")
        me = calls(client, "CLIENT ID")[0]
        client.raw(encode(b"XREAD BLOCK 0 STREAMS s $".split()) + encode([b"PING"]))
        until(lambda: running.server.blocked == 1)
        gate.fails = dict.fromkeys(("append", "write", "create", "rename"), errno.EIO)
        other.raw(ADD)
        assert b"outcome unknown" in other.receive()[1]
        dial(running.port).raw(encode([b"CLIENT", b"UNBLOCK", b"%d" % me]))
        assert client.receive()


# --- who syncs


def test_the_loop_syncs_while_the_disk_is_quick_and_waits_for_no_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it was slow, others are served while it syncs."""
    now = [100.0]  # a machine that is busy would make any sync a slow one
    monkeypatch.setattr("tidelog.aof.log.time", SimpleNamespace(monotonic=lambda: now[0]))
    with simulated("always") as (running, gate):
        log = inside.log(running.db)
        client, other = dial(running.port), dial(running.port)
        calls(client, "XADD s * a 1")
        syncers: list[str] = []
        log.on_sync = lambda seconds: syncers.append(threading.current_thread().name)
        log.slowest_s = 0.0
        calls(client, *["XADD s * a 1"] * 5)
        assert syncers and "tidelog-sync" not in syncers
        gate.open.clear()  # one is slow: that could not be known
        client.raw(ADD)
        until(lambda: gate.held)
        assert silent(client, 0.05)
        now[0] += 0.1
        gate.open.set()
        client.receive()
        assert log.slowest_s > 0.05
        syncers.clear()
        gate.open.clear()
        client.raw(ADD)
        assert silent(client, 0.05)
        assert calls(other, "PING") == [("+", b"PONG")]
        gate.open.set()
        client.receive()
        until(lambda: syncers)
        assert set(syncers) == {"tidelog-sync"}
        for _ in range(300):
            calls(client, "XADD s * a 1")
        assert syncers[-1] != "tidelog-sync", "it has been quick for long"


@pytest.mark.parametrize("slowest_s", [0.0, 0.1])
def test_a_sync_that_fails_under_always_is_told_by_whoever_made_it(slowest_s: float) -> None:
    with simulated("always") as (running, gate):
        clients = [dial(running.port) for _ in range(5)]
        for client in clients:
            calls(client, "XADD s * a 1")
        inside.log(running.db).slowest_s = slowest_s
        gate.fails["fdatasync"] = errno.EIO
        for client in clients:
            client.raw(ADD)
        for client in clients:
            assert client.receive()[0] == "-"


# --- what replies rest on


def test_a_message_rests_on_what_its_publisher_wrote() -> None:
    """A client may act on a change that it hears of, so the change has to be on the disk by then (as in Redis)."""
    with simulated("always") as (running, gate):
        subscriber, client = dial(running.port), dial(running.port)
        calls(subscriber, "SUBSCRIBE c")
        calls(client, "XADD s * a 1")
        gate.open.clear()
        words = ("XADD s * a 1", "PUBLISH c one", "MULTI", "XADD s * a 1", "PUBLISH c two", "EXEC")
        client.send([word.encode().split() for word in words])
        assert silent(subscriber)
        gate.open.set()
        assert subscriber.receive() == [b"message", b"c", b"one"]
        assert subscriber.receive() == [b"message", b"c", b"two"]


def test_parked_again_before_the_loop_has_its_turn() -> None:
    """Replies whose data is on the disk leave, whatever lags behind by then."""
    with simulated("everysec") as (running, gate):
        log, release = inside.log(running.db), running.server.turns._release
        client = dial(running.port)
        calls(client, "XADD s * a 1")

        def late(error: Any) -> None:
            log._park(True)
            release(error)
            log._park(False)

        running.server.turns._release = late  # type: ignore[method-assign]
        log.parked = True
        client.raw(ADD)
        assert isinstance(client.receive(), bytes)


def test_the_timer_of_writers_that_wait_for_memory_is_one() -> None:
    with simulated("everysec") as (running, gate):
        server = running.server
        calls(dial(running.port), "XADD s * a 1")
        count, release = 0, server.turns._release

        def counted(error: Any) -> None:
            nonlocal count
            count += 1
            release(error)

        server.turns._release = counted  # type: ignore[method-assign]
        relief = threading.Event()
        inside.core(running.db).press(relief)
        clients = [dial(running.port) for _ in range(20)]
        for client in clients:
            client.raw(ADD)
            time.sleep(0.01)
        before, began = count, time.monotonic()
        time.sleep(0.5)
        assert count - before < 200 * (time.monotonic() - began)
        inside.core(running.db).press(None)
        relief.set()
        for client in clients:
            assert isinstance(client.receive(), bytes)


# --- errors


def fill(client: Any) -> None:
    """Use up the room that is prepared."""
    for size in (9000, 1):
        for _ in range(20_000):
            client.send([[b"XADD", b"big", b"*", b"a", b"x" * size]])
            answer = client.receive()
            if isinstance(answer, tuple):
                assert answer[1].startswith(b"MISCONF")
                break


def test_a_full_disk_and_a_key_that_is_due() -> None:
    """Reads go on. An EXEC that is refused ends its transaction."""
    clock = tidelog.testing.Clock()
    with simulated("everysec", clock=clock) as (running, gate):
        client = dial(running.port)
        calls(client, "SET k v PX 100", "SET other v", "XADD s 1-1 a b")
        full(gate)
        fill(client)
        clock.advance(1)
        assert calls(client, "GET other", "GET k", "XLEN s") == [b"v", None, 1]
        assert calls(client, "MULTI", "XLEN s", "EXEC", "PING")[2:] == [[1], ("+", b"PONG")]
        answers = calls(client, "MULTI", "XADD s 2-1 a b", "EXEC", "PING")
        assert answers[2][1].startswith(b"MISCONF")
        assert answers[3] == ("+", b"PONG")
        gate.fails.clear()
        assert calls(client, "XADD s 2-1 a b", "DBSIZE") == [b"2-1", 3]


def test_a_write_that_breaks_off_is_mended_by_the_next_call() -> None:
    """Also by a read: it need not wait for a write."""
    with simulated("everysec") as (running, gate):
        client = dial(running.port)
        calls(client, "XADD s 1-1 a 1")
        gate.fails = {"append": errno.EIO, "write": errno.EIO}
        client.send([b"XADD s 2-1 a 1".split()])
        assert b"outcome unknown" in client.rest()
        gate.fails.clear()
        assert calls(dial(running.port), "XLEN s", "XADD s 3-1 a 1") == [1, b"3-1"]


def test_a_turn_that_breaks_off_is_not_the_last(server: Running) -> None:
    client = dial(server.port)
    deliver = server.server.pubsub.deliver

    def broken() -> None:
        server.server.pubsub.deliver = deliver  # type: ignore[method-assign]
        raise RuntimeError("a fault of ours")

    server.server.pubsub.deliver = broken  # type: ignore[method-assign]
    assert calls(client, "PING") == [("+", b"PONG")]
    assert calls(client, "XADD s 1-1 a 1", "PING") == [b"1-1", ("+", b"PONG")]


# --- bounds, and the end


def test_a_blocked_client_that_sends_much(server: Running) -> None:
    client = dial(server.port)
    client.raw(encode(b"XREAD BLOCK 0 STREAMS s $".split()))
    client._link.settimeout(0.5)
    sent = 0
    with suppress(TimeoutError):
        for _ in range(100):
            client.raw(encode([b"PING", b"x" * 1_000_000]))
            sent += 1
    assert sent < 20


def test_a_monitor_that_does_not_read(server: Running) -> None:
    monitor, client = dial(server.port), dial(server.port)
    calls(monitor, "MONITOR")
    for _ in range(60):
        client.send([[b"ECHO", b"x" * 1_000_000]])
        client.receive()
    until(lambda: not server.server.monitors)


def test_a_store_that_was_closed_is_not_served(start: Start) -> None:
    running = start()
    client = dial(running.port)
    assert calls(client, "PING") == [("+", b"PONG")]
    running.db.close()
    assert client.rest() == b""
    until(lambda: not running.serving._thread.is_alive())
    with pytest.raises(tidelog.StoreClosed):
        tidelog.serve(running.db, port=0)


def test_a_server_that_has_ended_begins_nothing(start: Start) -> None:
    """Its loop may run callbacks a last time, but no task that one of them makes."""
    running = start()
    running.serving.close()
    running.server.stop()


def test_one_server_for_a_store(server: Running) -> None:
    """A second one would take the keyspace events from the first."""
    with pytest.raises(ConfigError):
        tidelog.serve(server.db, port=0)
    server.serving.close()
    with tidelog.serve(server.db, port=0) as again:
        assert calls(dial(again.port), "PING") == [("+", b"PONG")]


def test_closed_while_it_ends_by_itself(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop takes callbacks until it is closed, and runs none any more once it has stopped."""
    stopped = threading.Event()

    class Loop(asyncio.SelectorEventLoop):
        def close(self) -> None:
            stopped.set()
            time.sleep(0.3)
            super().close()

    monkeypatch.setattr(serving, "loop_factory", lambda: Loop)
    running = start()
    running.db.close()
    assert stopped.wait(60)
    closing = threading.Thread(target=running.serving.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_a_malformed_exec_drops_its_watches_under_the_lock(server: Running) -> None:
    """The owner's threads go through them with each write."""
    client = dial(server.port)
    calls(client, "WATCH k", "MULTI")
    with inside.lock(server.db):
        client.begin(b"EXEC", b"x")
        assert silent(client)
    assert client.receive()[1].startswith(b"EXECABORT")


KEYS = (b"gathered", b"breaks", b"after")


def test_who_rests_on_a_log_that_was_given_up_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one turn: a write that is gathered, one that breaks the log, and one that has it begun anew."""
    monkeypatch.setattr(turns, "TURN_S", 60.0)
    running = start(fsync="everysec")
    clients = [dial(running.port) for _ in range(3)]
    for client in clients:
        assert client.call(b"SET", b"before", b"1") == ("+", b"OK")
    old, add = inside.log(running.db), Log.add

    def broken(log: Log, body: bytes, *rest: Any) -> int:
        if log is old and b"breaks" in body:
            error = MemoryError("injected")
            log._doubts(error)
            raise error
        return add(log, body, *rest)

    monkeypatch.setattr(Log, "add", broken)
    in_one_turn(running, clients, [encode([b"SET", key, b"1"]) for key in KEYS])
    told = [client.receive() for client in clients]
    assert [reply[1][:20] for reply in told[:2]] == [b"ERR outcome unknown:"] * 2
    assert told[2] == ("+", b"OK")
    assert [running.db.get(key) for key in KEYS] == [None, None, b"1"]


def test_a_log_that_was_given_up_says_nothing_of_the_one_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under `always`: who wrote into the new log is told when the disk has it, not that the old one failed."""
    monkeypatch.setattr(turns, "TURN_S", 60.0)
    with simulated("always") as (running, gate):
        clients = [dial(running.port) for _ in range(3)]
        for client in clients:
            assert client.call(b"SET", b"before", b"1") == ("+", b"OK")
        old, add = inside.log(running.db), Log.add

        def broken(log: Log, body: bytes, *rest: Any) -> int:
            if log is old and b"breaks" in body:
                error = MemoryError("injected")
                log._doubts(error)
                raise error
            if log is not old and b"after" in body:
                gate.open.clear()
                log.slowest_s = 1.0  # so that another thread syncs
            return add(log, body, *rest)

        monkeypatch.setattr(Log, "add", broken)
        in_one_turn(running, clients, [encode([b"SET", key, b"1"]) for key in KEYS])
        for client in clients[:2]:
            assert client.receive()[1].startswith(b"ERR outcome unknown:")
        assert silent(clients[2])
        gate.open.set()
        assert clients[2].receive() == ("+", b"OK")


@pytest.mark.parametrize("slowest_s", [0.0, 0.1])
@pytest.mark.parametrize("count", [1, 3, 70])
def test_each_command_of_a_pipeline_is_told_of_a_sync_that_failed(
    slowest_s: float, count: int
) -> None:
    """As many errors as commands, behind what held before, and then the end."""
    with simulated("always") as (running, gate):
        client = dial(running.port)
        assert client.call(b"SET", b"k", b"1") == ("+", b"OK")
        inside.log(running.db).slowest_s = slowest_s
        gate.fails["fdatasync"] = errno.EIO
        client.raw(ADD * count)
        lines = client.rest().split(b"\r\n")
        assert lines.pop() == b"" and len(lines) == count
        assert {line[:21] for line in lines} == {b"-ERR outcome unknown:"}
