"""Publish and subscribe: beside a real redis-server 7.0 word for word, through redis-py, and as the store sees it."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from tests import inside
from tests.oracle.conftest import Oracle, oracle  # noqa: F401  # a fixture
from tests.oracle.wire import encode
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401
from tests.server.wire import Client, calls
from tests.until import PATIENCE_S, WaitRanOut, until

import tidelog
from tidelog.server.handlers import COMMANDS
from tidelog.server.monitoring.monitor import monitor_addr, monitor_line, quoted
from tidelog.server.pubsub import PubSub
from tidelog.store.commit.durability import Promise

SILENCE_S = 0.2  # after which nothing more is expected


class Line:
    """A socket of which everything that comes is kept as it comes."""

    def __init__(self, link: socket.socket, protocol: int) -> None:
        self.link = link
        link.settimeout(60)
        if protocol == 3:
            self.say("HELLO 3")
            self.say("ECHO ready")
            greeting = b""
            while not greeting.endswith(b"\r\nready\r\n"):
                greeting += link.recv(1 << 16)

    def say(self, line: str) -> None:
        self.link.sendall(encode([word.encode() for word in line.split()]))

    def heard(self) -> bytes:
        """The bytes that have come."""
        data = b""
        while select.select([self.link], [], [], 0)[0] and (piece := self.link.recv(1 << 16)):
            data += piece
        return data


def play(connect: Callable[[], socket.socket], protocol: int, script: str) -> dict[str, bytes]:
    """Lines `name: command`, one after the other: what came to everyone."""
    lines: dict[str, Line] = {}
    barrier = Client(connect())
    for row in script.strip().splitlines():
        name, _, command = row.strip().partition(": ")
        if name not in lines:
            lines[name] = Line(connect(), protocol)
        lines[name].say(command)
        for _ in range(2):  # the first may share a turn of the server with what it is to come after
            barrier.call(b"PING")
    heard = {name: line.heard() for name, line in lines.items()}
    for line in lines.values():
        line.link.close()
    barrier.close()
    return heard


# fmt: off
SCRIPTS = {
    "channels": """
        a: SUBSCRIBE x y x
        b: PUBLISH x one
        b: PUBLISH z one
        a: UNSUBSCRIBE x nowhere
        b: PUBLISH x two
        b: PUBLISH y two
        a: UNSUBSCRIBE
        a: UNSUBSCRIBE
        b: PUBLISH y three
        a: GET x""",
    "patterns": """
        a: PSUBSCRIBE x* [y]?
        a: SUBSCRIBE x1
        c: PSUBSCRIBE x*
        b: PUBLISH x1 one
        b: PUBLISH y1 one
        b: PUBLISH z one
        b: PUBSUB NUMPAT
        b: PUBSUB NUMSUB x1 y1
        b: PUBSUB NUMSUB
        b: PUBSUB CHANNELS
        b: PUBSUB CHANNELS y*
        b: PUBSUB CHANNELS x?
        a: PUNSUBSCRIBE x*
        b: PUBLISH x1 two
        a: PUNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: UNSUBSCRIBE x1
        b: PUBLISH x1 three
        b: PUBSUB NUMPAT""",
    "shards": """
        a: SSUBSCRIBE s t
        a: SUBSCRIBE s
        b: SPUBLISH s one
        b: PUBLISH s two
        b: PUBSUB SHARDCHANNELS t*
        b: PUBSUB SHARDNUMSUB s u
        b: PUBSUB CHANNELS
        a: SUNSUBSCRIBE t
        a: UNSUBSCRIBE s
        a: GET x
        a: SUNSUBSCRIBE
        a: SUNSUBSCRIBE
        a: GET x""",
    "what a subscriber may do": """
        a: SUBSCRIBE x
        a: PING hello
        a: PING one two
        a: GET k
        a: CONFIG GET nothing
        a: MULTI
        a: PUBLISH x self
        a: NOTHING
        a: SUBSCRIBE
        a: RESET
        a: PUBSUB CHANNELS
        a: PUBLISH x nobody""",
    "in a transaction": """
        a: MULTI
        a: SUBSCRIBE x
        a: PUBLISH y one
        a: PSUBSCRIBE p*
        a: SSUBSCRIBE s
        a: UNSUBSCRIBE
        a: PUNSUBSCRIBE
        a: EXEC""",
    "errors and help": """
        a: PUBSUB
        a: PUBSUB NOTHING
        a: PUBSUB CHANNELS a b
        a: PUBSUB shardchannels a b
        a: PUBSUB NUMPAT a
        a: PUBSUB HELP
        a: PUBSUB HELP a
        a: PUBLISH x
        a: PUBLISH x y z
        a: SPUBLISH x
        a: PSUBSCRIBE
        a: SSUBSCRIBE
        a: MONITOR now""",
    "one that leaves": """
        a: SUBSCRIBE x
        a: QUIT
        b: PUBLISH x one
        b: PUBSUB CHANNELS""",
    "events": """
        a: PSUBSCRIBE __key*
        b: CONFIG SET notify-keyspace-events KEAn
        b: XADD s 1-1 f v
        b: XADD s MAXLEN 1 2-1 f v
        b: XGROUP CREATE s g 0
        b: XREADGROUP GROUP g c STREAMS s >
        b: XACK s g 2-1
        b: PUBLISH __keyspace@0__:s by-hand
        b: SELECT 3
        b: SET k v EX 100
        b: RENAME k l
        b: DEL l
        b: FLUSHALL
        b: CONFIG SET notify-keyspace-events Kt
        b: SELECT 0
        b: SET k v
        b: XADD s 1-1 f v
        b: MULTI
        b: XADD s 2-1 f v
        b: PUBLISH __keymine x
        b: EXEC
        b: CONFIG GET notify-keyspace-events
        b: CONFIG SET notify-keyspace-events gxEA
        b: CONFIG GET notify-keyspace-events
        b: DEL s k""",
}
# fmt: on


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_bytes_as_redis(
    server: Running,
    oracle: Oracle,  # noqa: F811
    name: str,
    protocol: int,
) -> None:
    def theirs() -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(oracle.server.socket))
        return link

    control = oracle.server.connect()
    control.call(b"FLUSHALL")
    try:
        wanted = play(theirs, protocol, SCRIPTS[name])
    finally:
        control.call(b"CONFIG", b"SET", b"notify-keyspace-events", b"")
        control.close()
    got = play(
        lambda: socket.create_connection(("127.0.0.1", server.port)), protocol, SCRIPTS[name]
    )
    since_7_2 = (b"+    Prints this help.", b"+    Print this help.")
    assert {name: data.split(b"\r\n") for name, data in got.items()} == {
        name: data.replace(*since_7_2).split(b"\r\n") for name, data in wanted.items()
    }


def test_who_does_not_read_is_closed_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the next look: by then there may be gigabytes, and each message is there once for each of them."""
    monkeypatch.setattr("tidelog.server.server.LOOK_S", 1e9)
    running = start(client_output_buffer_limit="pubsub 2mb 0 0")
    until(lambda: running.server._times.look_at > 1e8)  # the only one is over
    stuck, watching, client = dial(running.port), dial(running.port), dial(running.port)
    calls(stuck, "SUBSCRIBE c")
    calls(watching, "MONITOR")
    message = encode([b"PUBLISH", b"c", b"x" * 100_000])
    for _ in range(10):
        client.raw(message * 20)
        for _ in range(20):
            client.receive()
    until(lambda: len(running.server.sessions) == 1)


# --- redis-py


def next_message(pubsub: Any) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = pubsub.get_message(timeout=1)
        if message is not None:
            assert isinstance(message, dict)
            return message
    raise WaitRanOut("no message")


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(server: Running, protocol: int) -> None:
    with server.client(protocol=protocol, decode_responses=True) as client:
        with client.pubsub() as listener:
            listener.subscribe("news")
            listener.psubscribe("n?ws*")
            assert [next_message(listener)["type"] for _ in "12"] == ["subscribe", "psubscribe"]
            assert client.publish("news", "hello") == 2
            first, second = next_message(listener), next_message(listener)
            assert (first["type"], first["data"]) == ("message", "hello")
            assert (second["type"], second["pattern"]) == ("pmessage", "n?ws*")
            assert client.pubsub_channels() == ["news"]
            assert client.pubsub_numsub("news", "none") == [("news", 1), ("none", 0)]
            assert client.pubsub_numpat() == 1
            if protocol == 2:  # with RESP3 it is no message
                listener.ping()
                assert next_message(listener)["type"] == "pong"
            listener.unsubscribe()
            listener.punsubscribe()
            assert [next_message(listener)["data"] for _ in "12"] == [1, 0]
            assert client.publish("news", "nobody") == 0


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_asyncio(server: Running, protocol: int) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(port=server.port, protocol=protocol) as client:
            async with client.pubsub() as listener:
                await listener.subscribe("news")
                await client.config_set("notify-keyspace-events", "KEA")
                await listener.psubscribe("__keyspace@*__:jobs")
                heard = []
                await client.xadd("jobs", {"f": "v"})
                await client.publish("news", "hello")
                async for message in listener.listen():
                    heard.append((message["type"], message["data"]))
                    if message["type"] == "message":
                        break
                assert heard == [
                    ("subscribe", 1),
                    ("psubscribe", 2),
                    ("pmessage", b"xadd"),
                    ("message", b"hello"),
                ]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_monitor_of_redis_py(server: Running) -> None:
    with server.client() as client, client.monitor() as monitor:
        client.execute_command("ECHO", b'\x00"\\ \xff')
        shown = monitor.next_command()
        while "ECHO" not in shown["command"]:
            shown = monitor.next_command()
        assert shown["db"] == 0
        assert shown["client_type"] == "tcp"
        client.config_get("port")  # of administration nothing is shown
        client.execute_command("ECHO", "after")
        assert monitor.next_command()["command"] == "ECHO after"


def shown_to(monitor: Client, client: Client) -> list[bytes]:
    """The commands of a client that a monitor was shown since the last look, each with its database."""
    client.call(b"ECHO", b"end")
    shown: list[bytes] = []
    while True:
        _, line = monitor.receive()
        if b'"ECHO" "end"' in line:
            return shown
        shown.append(b"%c %b" % (line[line.index(b"[") + 1], line.partition(b"] ")[2]))


def test_monitor_shows_what_runs_and_once(server: Running) -> None:
    """As Redis: a queued command when EXEC runs it, before EXEC; one that a pause holds back when it is over."""
    monitor, client = dial(server.port), dial(server.port)
    assert calls(monitor, "MONITOR") == [("+", b"OK")]
    calls(client, "MULTI", "SET a 1", "SELECT 2", "GET a", "CONFIG GET port", "EXEC")
    assert shown_to(monitor, client) == [
        b'0 "MULTI"', b'0 "SET" "a" "1"', b'0 "SELECT" "2"', b'2 "GET" "a"', b'2 "EXEC"',
    ]  # fmt: skip
    calls(client, "MULTI", "SET a 1", "DISCARD")
    assert shown_to(monitor, client) == [b'2 "MULTI"', b'2 "DISCARD"']
    calls(client, "MULTI", "SET a", "EXEC")
    assert shown_to(monitor, client) == [b'2 "MULTI"', b'2 "EXEC"']
    calls(client, "CLIENT PAUSE 100 WRITE", "SET a 1")
    assert shown_to(monitor, client) == [b'2 "SET" "a" "1"']


# --- events


def listening(running: Running, flags: str = "KEA") -> tuple[Any, Any]:
    client: Any = running.client()
    client.config_set("notify-keyspace-events", flags)
    listener = client.pubsub()
    listener.psubscribe("__keyevent@*__:*")
    next_message(listener)
    return client, listener


def test_what_the_owner_of_the_store_does_is_told_too(server: Running) -> None:
    """From its own threads, and while the server has nothing to do."""
    client, listener = listening(server)
    threads = [
        threading.Thread(target=lambda: [server.db.xadd("s", {"f": "v"}) for _ in range(200)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    heard = [next_message(listener) for _ in range(600)]
    for thread in threads:
        thread.join()
    assert {(m["channel"], m["data"]) for m in heard} == {(b"__keyevent@0__:xadd", b"s")}
    with server.db.pipeline(transaction=False) as pipe:
        for _ in range(100):
            pipe.xadd("s", {"f": "v"})
        pipe.execute()
    assert {next_message(listener)["data"] for _ in range(100)} == {b"s"}
    assert listener.get_message(timeout=SILENCE_S) is None
    client.close()


def test_keys_expire_unasked(server: Running) -> None:
    client, listener = listening(server, "Ex")
    client.set("k", "v", px=50)
    message = next_message(listener)
    assert (message["channel"], message["data"]) == (b"__keyevent@0__:expired", b"k")
    client.close()


def test_blocked_reader_and_subscriber(server: Running) -> None:
    """The events of a blocked read that is served come as well, after those of the command that woke it."""
    client, listener = listening(server, "Et")
    client.xgroup_create("s", "g", mkstream=True)
    with server.client() as other:
        reader = threading.Thread(target=lambda: other.xreadgroup("g", "c", {"s": ">"}, block=0))
        reader.start()
        events = [next_message(listener)["channel"].rpartition(b":")[2] for _ in "12"]
        client.xadd("s", {"f": "v"})
        events.append(next_message(listener)["channel"].rpartition(b":")[2])
        reader.join()
    assert events == [b"xgroup-create", b"xgroup-createconsumer", b"xadd"]
    client.close()


def test_a_session_that_ends_listens_to_nothing(server: Running) -> None:
    with server.client() as client:
        listener = client.pubsub()
        listener.subscribe("a", "b")
        listener.psubscribe("*")
        listener.ssubscribe("s")
        for _ in range(4):
            next_message(listener)
        pubsub = server.server.pubsub
        assert pubsub.counts() == (2, 1, 1)
        listener.close()
        until(lambda: pubsub.counts() == (0, 0, 0))


def test_nothing_is_collected_that_nobody_wants(server: Running) -> None:
    core = server.server.core
    assert core.landing.listener is None
    with server.client() as client:
        client.config_set("notify-keyspace-events", "KE")
        assert core.landing.listener is None
        client.config_set("notify-keyspace-events", "KEA")
        assert core.landing.listener is not None
        client.config_set("notify-keyspace-events", "")
        assert core.landing.listener is None


# --- the registry by itself


class Stub:
    """A session as far as PubSub knows it."""

    def __init__(self) -> None:
        self.channels: set[bytes] = set()
        self.patterns: set[bytes] = set()
        self.shard_channels: set[bytes] = set()
        self.got: list[Any] = []
        self.rested: list[int] = []

    def tell(self, message: Any, promise: Promise | None = None) -> None:
        if promise is not None:
            self.rested.append(promise[1])
        self.got.append(message)


async def registry(db: tidelog.Store, flags: str = "KEAn") -> PubSub:
    pubsub = PubSub(inside.core(db))
    pubsub.set_notifications(flags)
    return pubsub


def test_events_leave_when_their_unit_holds(tmp_path: Path) -> None:
    async def main() -> None:
        with tidelog.open(tmp_path / "store") as db:
            pubsub, stub = await registry(db, "Et"), Stub()
            pubsub.psubscribe(stub, b"*")
            db.xadd("s", {"f": "v"})
            other = threading.Thread(target=lambda: db.xadd("s", {"f": "v"}))
            other.start()
            other.join()
            assert stub.got == []
            pubsub.deliver()
            assert stub.got == [[b"pmessage", b"*", b"__keyevent@0__:xadd", b"s"]] * 2
            assert set(stub.rested) == {inside.log(db).next_lsn - 1}
            await asyncio.to_thread(db.xadd, "s", {"f": "v"})
            await asyncio.sleep(0.05)  # unasked
            assert len(stub.got) == 3
            pubsub.close()

    asyncio.run(main())


def test_a_unit_that_broke_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with tidelog.open(tmp_path / "store") as db:
            pubsub, stub = await registry(db, "Et"), Stub()
            pubsub.psubscribe(stub, b"*")

            def no_memory(*args: object) -> None:
                raise MemoryError

            with monkeypatch.context() as patch:
                patch.setattr("tidelog.store.commit.landing.APPLY", [no_memory] * 128)
                with pytest.raises(tidelog.NotStored):
                    db.xadd("s", {"f": "v"})
            pubsub.deliver()
            assert stub.got == []
            assert db.xlen("s") == 0
            db.xadd("s", {"f": "v"})
            pubsub.deliver()
            assert len(stub.got) == 1
            db.xadd("s", {"f": "v"})
        pubsub.deliver()  # the store has ended
        assert len(stub.got) == 1

    asyncio.run(main())


def test_without_subscribers_nothing_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        with tidelog.open(tmp_path / "store") as db:
            pubsub, stub = await registry(db), Stub()
            db.xadd("s", {"f": "v"})
            pubsub.subscribe(stub, b"__keyevent@0__:xadd")
            pubsub.deliver()
            assert stub.got == []
            pubsub.leave(stub)
            assert pubsub.counts() == (0, 0, 0)
            assert not pubsub._matchers

    asyncio.run(main())


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", b'"plain"'),
        (b"", b'""'),
        (b'a\x00b\r\n"\\\a\b\t\xc3\xbf~ ', rb'"a\x00b\r\n\"\\\a\b\t\xc3\xbf~ "'),
        ("\u00b2".encode(), rb'"\xc2\xb2"'),
    ],
)
def test_quoted(raw: bytes, shown: bytes) -> None:
    assert quoted(raw) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ECHO a", b'"ECHO" "a"'),
        ("AUTH me secret", b'"AUTH" "(redacted)" "(redacted)"'),
        (
            "hello 3 AUTH me secret SETNAME x",
            b'"hello" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "x"',
        ),
        (
            "HELLO 2 SETNAME auth AUTH me secret",
            b'"HELLO" "2" "SETNAME" "auth" "AUTH" "(redacted)" "(redacted)"',
        ),
        ("MONITOR", None),
        ("NOTHING", None),
    ],
)
def test_what_monitor_shows(line: str, shown: bytes | None) -> None:
    words, at = line.encode().split(), 1_700_000_000_000_042
    got = monitor_line(COMMANDS.table, words, 0, monitor_addr("tcp", "127.0.0.1:5"), at)
    assert got == (None if shown is None else b"1700000000.000042 [0 127.0.0.1:5] " + shown)
    if shown is not None:
        got = monitor_line(COMMANDS.table, words, 3, monitor_addr("unix", "/run/x.sock:0"), at)
        assert got == b"1700000000.000042 [3 unix:/run/x.sock] " + shown
