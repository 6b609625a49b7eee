"""A change of users reaches every connection that waits: in a read, for messages, for commands, in a pause, for EXEC.

Nothing here depends on time: a connection that waits is seen in the store or in CLIENT LIST before users are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from tests import inside
from tests.oracle.server import EIGHT, RedisServer
from tests.oracle.wire import Form
from tests.server.conftest import Running, Start
from tests.server.real_redis import real_redis
from tests.server.wire import Client, calls, connect
from tests.until import parked, until

from tidelog.testing import Clock

Dial = Callable[[], Client]
OK = ("+", b"OK")
KEYS = ("-", b"NOPERM No permissions to access a key")
NIL = ("*-1",)  # a null array
NOTHING_PENDING = [0, None, None, NIL]
EVERYTHING = "ACL SETUSER bob on nopass ~* &* +@all"


def no_command(name: str, user: str = "bob") -> tuple[str, bytes]:
    return "-", f"NOPERM User {user} has no permissions to run the '{name}' command".encode()


@pytest.fixture
def dial(server: Running) -> Iterator[Dial]:
    """Connects, and closes in the end."""
    with ExitStack() as stack:

        def begin() -> Client:
            client = connect(server.port)
            stack.callback(client.close)
            return client

        yield begin


READS = {
    "xread": "XREAD BLOCK 0 STREAMS s $",
    "two keys": "XREAD BLOCK 0 STREAMS t s $ $",
    "xreadgroup": "XREADGROUP GROUP g bob BLOCK 0 STREAMS s >",
    "xreadgroup, COUNT": "XREADGROUP GROUP g bob COUNT 1 BLOCK 0 STREAMS s >",
    "xreadgroup, two keys": "XREADGROUP GROUP g bob BLOCK 0 STREAMS t s > >",
    "xreadgroup, NOACK": "XREADGROUP GROUP g bob BLOCK 0 NOACK STREAMS s >",
    "xreadgroup, CLAIM": "XREADGROUP GROUP g bob BLOCK 0 CLAIM 3600000 STREAMS s >",
}
CHANGES = ("resetkeys", "resetkeys ~t", "resetkeys %W~*", "-@all", "off", "reset")
WRITERS: dict[str, Callable[[Running, Client], object]] = {
    "a client": lambda server, admin: calls(admin, "XADD s 1-1 a 1"),
    "EXEC": lambda server, admin: calls(admin, "MULTI", "XADD s 1-1 a 1", "EXEC"),
    "the owner": lambda server, admin: server.db.xadd("s", {"a": "1"}, id="1-1"),
}


def groups(admin: Client) -> None:
    for key in ("s", "t"):
        assert calls(admin, f"XGROUP CREATE {key} g 0 MKSTREAM") == [OK]


def block(server: Running, client: Client, read: str, count: int = 1) -> None:
    client.begin(*read.encode().split())
    parked(server.db, count)


def refusal(change: str, read: str) -> tuple[str, bytes]:
    return KEYS if change.startswith("resetkeys") else no_command(read.split()[0].lower())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_blocked_read_is_refused_when_it_is_served(
    server: Running, dial: Dial, read: str, change: str
) -> None:
    admin, bob, ann = dial(), dial(), dial()
    groups(admin)
    calls(admin, EVERYTHING)
    calls(bob, "AUTH bob x")
    block(server, bob, read)
    block(server, ann, "XREADGROUP GROUP g ann BLOCK 0 STREAMS s >", 2)
    assert calls(admin, f"ACL SETUSER bob {change}", "XADD s 1-1 a 1") == [OK, b"1-1"]
    assert bob.receive() == refusal(change, read)
    # The one behind gets the entry, and nothing is pending for bob.
    assert ann.receive() == [[b"s", [[b"1-1", [b"a", b"1"]]]]]
    assert calls(admin, "XPENDING s g") == [[1, b"1-1", b"1-1", [[b"ann", b"1"]]]]
    assert calls(admin, "CLIENT LIST TYPE normal")[0] is not None
    assert not inside.waiters(server.db)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_writer(
    server: Running, dial: Dial, read: str, write: Callable[[Running, Client], object]
) -> None:
    """Bob waits alone on the key, where messages are handed out without a decision."""
    admin, bob = dial(), dial()
    groups(admin)
    calls(admin, EVERYTHING)
    calls(bob, "AUTH bob x")
    block(server, bob, read)
    calls(admin, "ACL SETUSER bob resetkeys ~t")
    write(server, admin)
    assert bob.receive() == KEYS
    assert calls(admin, "XPENDING s g") == [NOTHING_PENDING]
    entry = [[b"s", [[b"1-1", [b"a", b"1"]]]]]
    assert calls(admin, "XREADGROUP GROUP g ann STREAMS s >") == [entry]


def test_a_change_in_the_same_turn(server: Running, dial: Dial) -> None:
    """Both arrive together, and the connection of the blocked client is not closed yet."""
    admin, bob, ann = dial(), dial(), dial()
    groups(admin)
    for name, client in (("bob", bob), ("ann", ann)):
        calls(admin, EVERYTHING.replace("bob", name))
        calls(client, f"AUTH {name} x")
    block(server, bob, READS["xreadgroup"])
    block(server, ann, READS["xreadgroup"], 2)
    both = calls(
        admin, "ACL SETUSER ann resetkeys", "ACL DELUSER bob", "XADD s 1-1 a 1", "XPENDING s g"
    )
    assert both == [OK, 1, b"1-1", NOTHING_PENDING]
    assert ann.receive() == KEYS
    assert closed(bob)
    assert calls(admin, "XPENDING s g") == [NOTHING_PENDING]


def test_a_refused_read_is_noted_and_the_connection_goes_on(server: Running, dial: Dial) -> None:
    admin, bob = dial(), dial()
    groups(admin)
    calls(admin, EVERYTHING, "ACL LOG RESET", "CONFIG RESETSTAT")
    calls(bob, "AUTH bob x")
    for _ in range(2):  # the second time it is known that the same read comes again
        block(server, bob, READS["xreadgroup"])
        calls(admin, "ACL SETUSER bob resetkeys", "XADD s * a 1")
        assert bob.receive() == KEYS
        assert calls(bob, READS["xreadgroup"], "PING") == [KEYS, ("+", b"PONG")]
        calls(admin, "ACL SETUSER bob ~*", "XREADGROUP GROUP g ann STREAMS s >")
    [entry] = calls(admin, "ACL LOG")[0]
    assert entry[1] == 4 and entry[3:10:2] == [b"key", b"toplevel", b"s", b"bob"]
    info = server.client().info("commandstats")
    assert info["cmdstat_xreadgroup"]["calls"] == 2  # ann's
    assert info["cmdstat_xreadgroup"]["rejected_calls"] == 4


def test_a_change_that_is_taken_back(server: Running, dial: Dial) -> None:
    admin, bob = dial(), dial()
    groups(admin)
    calls(admin, EVERYTHING)
    calls(bob, "AUTH bob x")
    block(server, bob, READS["xreadgroup"])
    for change in CHANGES[:-1]:
        calls(admin, f"ACL SETUSER bob {change}", "ACL SETUSER bob on ~* &* +@all")
    calls(admin, "XADD s 1-1 a 1")
    assert bob.receive() == [[b"s", [[b"1-1", [b"a", b"1"]]]]]
    block(server, bob, READS["xreadgroup"])
    calls(admin, "XADD s 1-2 a 1")
    assert bob.receive() == [[b"s", [[b"1-2", [b"a", b"1"]]]]]


def test_a_wait_that_ends_otherwise(start: Start) -> None:
    """Its time is up, or CLIENT UNBLOCK: as if nothing had changed, since nothing is told."""
    clock = Clock()
    server = start(clock=clock)
    with closing(connect(server.port)) as admin, closing(connect(server.port)) as bob:
        groups(admin)
        calls(admin, EVERYTHING)
        calls(bob, "AUTH bob x")
        [number] = calls(bob, "CLIENT ID")
        block(server, bob, READS["xread"])
        assert calls(admin, "ACL SETUSER bob resetkeys", f"CLIENT UNBLOCK {number}") == [OK, 1]
        assert bob.receive() == NIL
        calls(admin, "ACL SETUSER bob ~*")
        block(server, bob, "XREAD BLOCK 20 STREAMS s $")
        calls(admin, "ACL SETUSER bob resetkeys")
        clock.advance(0.02)
        assert bob.receive() == NIL


@pytest.mark.parametrize(
    "change", ["resetkeys &c*", "-@write", ">password", "resetpass >password", "+@all", "~s"]
)
def test_a_change_that_forbids_nothing_of_it(server: Running, dial: Dial, change: str) -> None:
    """Passwords are for signing in: connections that have done so go on, as in Redis."""
    admin, bob = dial(), dial()
    groups(admin)
    calls(admin, EVERYTHING.replace("~*", "%R~s"))
    calls(bob, "AUTH bob x")
    block(server, bob, READS["xread"])
    calls(admin, f"ACL SETUSER bob {change.replace('resetkeys', 'resetkeys %R~s')}")
    calls(admin, "ACL SETUSER ann on nopass -@all", "CONFIG SET requirepass secret")
    calls(admin, "XADD s 1-1 a 1")
    assert bob.receive() == [[b"s", [[b"1-1", [b"a", b"1"]]]]]


def test_the_default_user_changes(server: Running, dial: Dial) -> None:
    admin, reader = dial(), dial()
    calls(admin, EVERYTHING, "AUTH bob x")
    block(server, reader, READS["xread"])
    assert calls(admin, "ACL SETUSER default off", "XADD s 1-1 a 1") == [OK, b"1-1"]
    assert reader.receive() == no_command("xread", "default")


def closed(client: Client) -> bool:
    """Whether the server closes the connection soon, and tells it nothing before."""
    return client.rest() == b""


LISTENERS = {
    "subscribe": "SUBSCRIBE c1 c2",
    "psubscribe": "PSUBSCRIBE c*",
    "ssubscribe": "SSUBSCRIBE c1",
    "monitor": "MONITOR",
}


@pytest.mark.parametrize("change", ["-@all", "off", "reset", "-{}", "deleted"])
@pytest.mark.parametrize("name", LISTENERS)
@pytest.mark.parametrize("protocol", [2, 3])
def test_listeners_are_closed(
    server: Running, dial: Dial, name: str, change: str, protocol: int
) -> None:
    admin, bob = dial(), dial()
    calls(admin, EVERYTHING)
    bob.raw(f"HELLO {protocol} AUTH bob x\r\n{LISTENERS[name]}\r\n".encode())
    sessions = server.server.sessions
    until(lambda: any(session.subscribed or session.monitor for session in [*sessions.values()]))
    word = f"ACL SETUSER bob {change.format(name)}" if change != "deleted" else "ACL DELUSER bob"
    told = calls(admin, word, "PUBLISH c1 secret", "SPUBLISH c1 secret", "SET k secret")
    assert told[0] in (OK, 1)
    assert b"secret" not in bob.rest()
    until(lambda: len(server.server.sessions) == 1)


def test_listeners_that_may_go_on(server: Running, dial: Dial) -> None:
    admin, channel, pattern, monitor = (dial() for _ in range(4))
    calls(admin, EVERYTHING)
    for client, what in (
        (channel, "SUBSCRIBE c1"),
        (pattern, "PSUBSCRIBE c*"),
        (monitor, "MONITOR"),
    ):
        calls(client, "AUTH bob x", what)
    calls(
        admin, "ACL SETUSER bob resetkeys resetchannels &c* -@all +subscribe +psubscribe +monitor"
    )
    calls(admin, "PUBLISH c1 x")
    assert channel.receive() == [b"message", b"c1", b"x"]
    assert pattern.receive() == [b"pmessage", b"c*", b"c1", b"x"]
    assert b'"PUBLISH" "c1" "x"' in monitor.receive()[1]


def test_a_paused_command_is_judged_when_the_pause_ends(server: Running, dial: Dial) -> None:
    admin, bob = dial(), dial()
    calls(admin, EVERYTHING)
    calls(bob, "AUTH bob x")
    calls(admin, "CLIENT PAUSE 100000 WRITE")
    bob.begin(b"XADD", b"s", b"1-1", b"a", b"1")
    until(lambda: server.server._pause.postponed)
    calls(admin, "ACL SETUSER bob -xadd", "CLIENT UNPAUSE")
    assert bob.receive() == no_command("xadd")
    assert calls(admin, "EXISTS s") == [0]


def test_a_wait_that_shows_no_key_goes_on(server: Running, dial: Dial) -> None:
    admin, bob = dial(), dial()
    calls(admin, EVERYTHING)
    calls(bob, "AUTH bob x")
    [number] = calls(bob, "CLIENT ID")
    bob.begin(b"WAIT", b"1", b"0")
    until(lambda: calls(admin, f"CLIENT UNBLOCK {number}") == [1])
    assert bob.receive() == 0
    bob.begin(b"WAITAOF", b"0", b"1", b"0")
    until(lambda: b"blocked_clients:1\r\n" in calls(admin, "INFO clients")[0])
    calls(admin, "ACL SETUSER bob -@all")
    until(lambda: calls(admin, f"CLIENT UNBLOCK {number}") == [1])
    assert bob.receive()[1:] == [0]


def test_exec_with_watch_as_in_redis(server: Running) -> None:
    """The rules of the moment of EXEC hold for what was queued before, and a watched key that nobody touched stays."""
    script = (
        ("admin", EVERYTHING),
        ("bob", "AUTH bob x"),
        ("bob", "WATCH a"),
        ("bob", "MULTI"),
        ("bob", "XADD s 1-1 a 1"),
        ("bob", "XREAD STREAMS s 0"),
        ("bob", "SET a 1"),
        ("admin", "ACL SETUSER bob -xadd resetkeys ~a"),
        ("bob", "EXEC"),
        ("admin", "EXISTS s a"),
        ("bob", "WATCH a"),
        ("bob", "MULTI"),
        ("bob", "GET a"),
        ("admin", "ACL SETUSER bob -exec"),
        ("bob", "EXEC"),
        ("bob", "PING"),
    )

    def play(dial: Callable[[], Client]) -> list[Form]:
        with ExitStack() as stack:
            lines = {name: dial() for name in ("admin", "bob")}
            for line in lines.values():
                stack.callback(line.close)
            return [lines[name].call(*words.encode().split()) for name, words in script]

    with real_redis(EIGHT) as (redis7, _):
        theirs = play(lambda: _real(redis7))
    assert play(lambda: connect(server.port)) == theirs


def _real(redis7: RedisServer) -> Client:
    return redis7.connect()  # type: ignore[return-value]
