"""CLIENT, over real sockets: beside a real redis-server 7.0 where that has the command, and what it does to others."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from tests import inside
from tests.oracle.wire import Connection, encode
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.real_redis import real_redis
from tests.server.wire import Client, calls
from tests.until import until

from tidelog.server import reserve
from tidelog.server.monitoring.logs import VERBOSE
from tidelog.testing import Clock

# fmt: off
REPLIES = """
CLIENT
CLIENT NOSUCH
CLIENT ID x
CLIENT INFO x
CLIENT GETNAME
CLIENT GETNAME x
CLIENT SETNAME
CLIENT SETNAME a\x00b
CLIENT SETNAME a\x7f
CLIENT SETNAME caf\u00e9
CLIENT SETNAME good!~name
CLIENT GETNAME
CLIENT LIST TYPE
CLIENT LIST TYPE foo
CLIENT LIST TYPE slave
CLIENT LIST TYPE replica
CLIENT LIST TYPE master
CLIENT LIST TYPE pubsub
CLIENT LIST TYPE normal ID 5
CLIENT LIST ID
CLIENT LIST ID abc
CLIENT LIST ID 0 999999
CLIENT LIST FOO
CLIENT KILL
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID
CLIENT KILL ID abc
CLIENT KILL ID 0
CLIENT KILL ID -1
CLIENT KILL ID 999999
CLIENT KILL TYPE foo
CLIENT KILL TYPE normal ADDR
CLIENT KILL ADDR 1.1.1.1:1 FOO bar
CLIENT KILL ADDR 1.1.1.1:1
CLIENT KILL LADDR 1.1.1.1:1
CLIENT KILL USER nobody
CLIENT KILL USER default SKIPME foo
CLIENT KILL USER default SKIPME
CLIENT KILL SKIPME yes
CLIENT KILL TYPE replica SKIPME yes
CLIENT KILL TYPE pubsub
CLIENT UNBLOCK
CLIENT UNBLOCK abc
CLIENT UNBLOCK 99999
CLIENT UNBLOCK 99999 foo
CLIENT UNBLOCK 99999 TIMEOUT
CLIENT UNBLOCK 99999 TIMEOUT x
CLIENT REPLY
CLIENT REPLY foo
CLIENT REPLY ON
CLIENT NO-EVICT
CLIENT NO-EVICT foo
CLIENT NO-EVICT ON
CLIENT NO-EVICT off
CLIENT PAUSE
CLIENT PAUSE abc
CLIENT PAUSE -1
CLIENT PAUSE 1 foo
CLIENT PAUSE abc foo
CLIENT PAUSE 1 WRITE foo
CLIENT PAUSE 99999999999999999999
CLIENT PAUSE 0 WRITE
CLIENT PAUSE 60000 write
CLIENT UNPAUSE
CLIENT UNPAUSE x
CLIENT TRACKING
CLIENT TRACKING foo
CLIENT TRACKING OFF
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT CACHING YES
CLIENT CACHING foo
""".strip().splitlines()
FIELDS = (
    "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem multi-mem rbs rbp obl "
    "oll omem tot-mem events cmd user redir resp lib-name lib-ver"
).split()
YOUNGER = {"watch", "lib-name", "lib-ver"}  # than 7.0
# fmt: on


@pytest.fixture(scope="module")
def seven() -> Iterator[Connection]:
    with real_redis() as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


def facts(client: Connection) -> dict[str, str]:
    """CLIENT INFO."""
    return parse(client.call(b"CLIENT", b"INFO"))


def parse(line: bytes) -> dict[str, str]:
    assert line.endswith(b"\n")
    return dict(pair.split("=", 1) for pair in line.decode()[:-1].split(" "))


def others(client: Connection) -> dict[int, dict[str, str]]:
    """CLIENT LIST, by ID."""
    lines = client.call(b"CLIENT", b"LIST").splitlines(keepends=True)
    found = [parse(line) for line in lines]
    return {int(each["id"]): each for each in found}


def gone(client: Client) -> bool:
    try:
        return client.rest() == b""
    except TimeoutError:
        return False


def test_replies(server: Running, seven: Connection) -> None:
    """One connection, since some of them change it."""
    client = dial(server.port)
    for line in REPLIES:
        words = [word.encode() for word in line.split(" ")]
        assert client.call(*words) == seven.call(*words), line


def test_a_line_has_the_fields_of_redis_in_their_order(server: Running, seven: Connection) -> None:
    client = dial(server.port)
    seven.call(b"CLIENT", b"SETNAME", b"")
    ours, theirs = facts(client), facts(seven)
    assert list(ours) == FIELDS
    assert list(theirs) == [name for name in FIELDS if name not in YOUNGER]
    for name in (
        "name",
        "age",
        "idle",
        "db",
        "sub",
        "psub",
        "ssub",
        "multi",
        "user",
        "redir",
        "resp",
    ):
        assert ours[name] == theirs[name], name
    assert ours["cmd"] == theirs["cmd"] == "client|info"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", ours["addr"])
    assert ours["laddr"] == f"127.0.0.1:{server.port}" and int(ours["fd"]) > 2


def test_what_a_line_says(server: Running) -> None:
    client = dial(server.port)
    client.call(b"CLIENT", b"SETNAME", b"me")
    client.call(b"CLIENT", b"SETINFO", b"LIB-NAME", b"lib(x)")
    client.call(b"CLIENT", b"SETINFO", b"lib-ver", b"1.2")
    client.call(b"SELECT", b"3")
    client.call(b"WATCH", b"a", b"b")
    client.call(b"CLIENT", b"NO-EVICT", b"on")
    client.call(b"CLIENT", b"NO-TOUCH", b"on")
    client.call(b"MULTI")
    client.call(b"SET", b"k", b"v" * 100)
    client.call(b"PING")
    id_ = max(server.server.sessions)
    found = others(dial(server.port))[id_]
    said = {name: found[name] for name in "name db multi watch flags lib-name lib-ver resp".split()}
    assert said == {
        **{"name": "me", "db": "3", "multi": "2", "watch": "2", "flags": "xeT"},
        **{"lib-name": "lib(x)", "lib-ver": "1.2", "resp": "2"},
    }
    assert 100 <= int(found["multi-mem"]) <= int(found["tot-mem"]) < 200


def test_blocked_subscribed_and_monitoring(server: Running) -> None:
    blocked, listening, watching, asking = (dial(server.port) for _ in range(4))
    ids = [each.call(b"CLIENT", b"ID") for each in (blocked, listening, watching, asking)]
    assert ids == sorted(set(ids))
    blocked.begin(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$")
    listening.call(b"SUBSCRIBE", b"a")
    listening.call(b"PSUBSCRIBE", b"a*")
    watching.call(b"MONITOR")
    until(lambda: others(asking)[ids[0]]["flags"] == "b")
    found = others(asking)
    assert found[ids[0]]["cmd"] == "xread"
    assert [found[ids[1]][name] for name in ("flags", "sub", "psub", "cmd")] == [
        "P",
        "1",
        "1",
        "psubscribe",
    ]
    assert found[ids[2]]["flags"] == "O"
    assert (found[ids[3]]["flags"], found[ids[3]]["cmd"]) == ("N", "client|list")

    def listed(*words: bytes) -> list[int]:
        lines = asking.call(b"CLIENT", b"LIST", *words).splitlines(keepends=True)
        return [int(parse(line)["id"]) for line in lines]

    assert listed(b"TYPE", b"pubsub") == [ids[1]]
    assert listed(b"TYPE", b"NORMAL") == [ids[0], ids[2], ids[3]]
    assert listed(b"ID", b"%d" % ids[2], b"7777", b"%d" % ids[0]) == [ids[2], ids[0]]


def test_a_unix_socket(start: Start, tmp_path: Path) -> None:
    running = start(unixsocket=str(tmp_path / "s"))
    with redis.Redis(unix_socket_path=str(tmp_path / "s"), protocol=2) as client:
        found = client.client_info()
    assert found["flags"] == "U" and found["addr"] == f"{tmp_path / 's'}:0"
    assert running.port


def test_the_mode_of_a_unix_socket(start: Start, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        start(unixsocket=str(tmp_path / "s"), unixsocketperm="772")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o772


def test_verbatim_in_resp3(server: Running) -> None:
    client = dial(server.port)
    hello = encode([b"HELLO", b"3"]) + encode([b"PING"])
    client.raw(
        hello + encode([b"CLIENT", b"INFO"]) + encode([b"CLIENT", b"LIST"]) + encode([b"QUIT"])
    )
    rest = client.rest().partition(b"+PONG\r\n")[2]
    assert re.fullmatch(rb"(=\d+\r\ntxt:id=.*\n\r\n){2}\+OK\r\n", rest)


@pytest.mark.parametrize("option", [b"LIB-NAME", b"lib-ver"])
def test_setinfo(server: Running, option: bytes) -> None:
    client = dial(server.port)
    refused = b"ERR %b cannot contain spaces, newlines or special characters." % option
    assert client.call(b"CLIENT", b"SETINFO", option, b"a b") == ("-", refused)
    assert client.call(b"CLIENT", b"SETINFO", b"LIB-X", b"a") == (
        "-",
        b"ERR Unrecognized option 'LIB-X'",
    )
    assert client.call(b"CLIENT", b"SETINFO", option, b"a") == ("+", b"OK")
    assert client.call(b"CLIENT", b"SETINFO", option, b"") == ("+", b"OK")
    assert facts(client)[option.decode().lower()] == ""


def test_tracking_is_refused(server: Running) -> None:
    client = dial(server.port)
    kind, line = client.call(b"CLIENT", b"TRACKING", b"ON", b"BCAST")
    assert kind == "-" and b"not supported" in line
    assert client.call(b"CLIENT", b"TRACKING", b"OFF", b"BCAST") == ("-", b"ERR syntax error")


# --- KILL


def test_kill_by_each_filter(server: Running) -> None:
    asking = dial(server.port)
    own = asking.call(b"CLIENT", b"ID")
    for words in (
        "ID {id}",
        "ADDR {addr}",
        "{addr}",
        "ID {id} ADDR {addr} TYPE normal USER default LADDR {laddr}",
    ):
        victim = dial(server.port)
        about = facts(victim)
        words = words.format(**about)
        old_form = " " not in words
        reply = asking.call(b"CLIENT", b"KILL", *words.encode().split())
        assert reply == (("+", b"OK") if old_form else 1)
        assert gone(victim)
        until(lambda: set(others(asking)) == {own})
    victims = [dial(server.port) for _ in range(3)]
    ids = [int(facts(each)["id"]) for each in victims]
    victims[0].call(b"SUBSCRIBE", b"c")
    assert asking.call(b"CLIENT", b"KILL", b"TYPE", b"pubsub") == 1
    assert asking.call(b"CLIENT", b"KILL", b"ID", b"%d" % ids[1], b"TYPE", b"pubsub") == 0
    assert asking.call(b"CLIENT", b"KILL", b"USER", b"default") == 2
    assert all(gone(each) for each in victims)


def test_a_killed_client_is_gone_at_once(server: Running) -> None:
    """Also for the commands that the same client sent right behind."""
    words = ["CLIENT KILL TYPE pubsub", "CLIENT KILL TYPE pubsub", "CLIENT LIST TYPE pubsub"]
    found = []
    with real_redis() as (real, _):
        for connect in (partial(dial, server.port), real.connect):
            asking, victim = connect(), connect()
            victim.call(b"SUBSCRIBE", b"c")
            found.append(calls(asking, *words))
            victim.close()
            asking.close()
    assert found == [[1, 0, b""], [1, 0, b""]]


def test_kill_oneself_answers_first(server: Running) -> None:
    client = dial(server.port)
    own = b"%d" % client.call(b"CLIENT", b"ID")
    assert client.call(b"CLIENT", b"KILL", b"ID", own) == 0
    assert client.call(b"CLIENT", b"KILL", b"ID", own, b"SKIPME", b"no") == 1
    assert gone(client)
    client = dial(server.port)
    addr = facts(client)["addr"].encode()
    assert client.call(b"CLIENT", b"KILL", addr) == ("+", b"OK")
    assert gone(client)
    client = dial(server.port)
    own = b"%d" % client.call(b"CLIENT", b"ID")
    kill = [b"CLIENT", b"KILL", b"ID", own, b"SKIPME", b"no"]
    client.send([[b"MULTI"], kill, [b"EXEC"], [b"SET", b"left", b"behind"]])
    assert [client.receive() for _ in range(3)] == [("+", b"OK"), ("+", b"QUEUED"), [1]]
    assert gone(client)
    assert not server.db.exists("left")


def age(server: Running, client: Client, seconds: float) -> None:
    """Let a client have come so much earlier."""
    server.server.sessions[client.call(b"CLIENT", b"ID")].connection.created -= seconds


def test_kill_by_age(server: Running) -> None:
    old, asking = dial(server.port), dial(server.port)
    errors = {
        b"x": b"ERR maxage is not an integer or out of range",
        b"0": b"ERR maxage should be greater than 0",
    }
    for word, error in errors.items():
        assert asking.call(b"CLIENT", b"KILL", b"MAXAGE", word) == ("-", error)
    assert asking.call(b"CLIENT", b"KILL", b"MAXAGE", b"3600") == 0
    age(server, old, 100)
    young = dial(server.port)
    young.call(b"PING")
    assert asking.call(b"CLIENT", b"KILL", b"MAXAGE", b"100") == 1
    assert gone(old) and young.call(b"PING") == ("+", b"PONG")


def test_kill_by_user(server: Running) -> None:
    asking, victim = dial(server.port), dial(server.port)
    asking.call(b"ACL", b"SETUSER", b"ann", b"on", b"nopass", b"+@all", b"~*")
    assert victim.call(b"AUTH", b"ann", b"x") == ("+", b"OK")
    assert facts(victim)["user"] == "ann"
    assert asking.call(b"CLIENT", b"KILL", b"USER", b"ann") == 1
    assert gone(victim)


def test_kill_who_is_blocked(server: Running) -> None:
    """Nothing is delivered to it any more."""
    asking, victim = dial(server.port), dial(server.port)
    asking.call(b"XGROUP", b"CREATE", b"s", b"g", b"$", b"MKSTREAM")
    id_ = victim.call(b"CLIENT", b"ID")
    victim.begin(b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"s", b">")
    until(lambda: others(asking)[id_]["flags"] == "b")
    assert asking.call(b"CLIENT", b"KILL", b"ID", b"%d" % id_) == 1
    assert gone(victim)
    until(lambda: id_ not in others(asking))
    asking.call(b"XADD", b"s", b"*", b"a", b"1")
    assert asking.call(b"XPENDING", b"s", b"g")[0] == 0


# --- UNBLOCK


@pytest.mark.parametrize(
    ("reason", "reply"),
    [
        ([], ("*-1",)),
        ([b"timeout"], ("*-1",)),
        ([b"ERROR"], ("-", b"UNBLOCKED client unblocked via CLIENT UNBLOCK")),
    ],
)
def test_unblock(server: Running, reason: list[bytes], reply: Any) -> None:
    asking, blocked = dial(server.port), dial(server.port)
    id_ = blocked.call(b"CLIENT", b"ID")
    assert asking.call(b"CLIENT", b"UNBLOCK", b"%d" % id_) == 0
    blocked.begin(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$")
    blocked.begin(b"PING")
    until(lambda: others(asking)[id_]["flags"] == "b")
    assert asking.call(b"CLIENT", b"UNBLOCK", b"%d" % id_, *reason) == 1
    assert blocked.receive() == reply
    assert blocked.receive() == ("+", b"PONG")
    assert asking.call(b"CLIENT", b"UNBLOCK", b"%d" % id_) == 0


# --- REPLY


def test_reply_off_and_on(server: Running) -> None:
    client = dial(server.port)
    client.send([
        [b"CLIENT", b"REPLY", b"OFF"], [b"PING"], [b"XADD", b"s", b"*", b"a", b"1"], [b"NOSUCH"], [b"XLEN"],
        [b"CLIENT", b"REPLY", b"SKIP"], [b"PING"], [b"CLIENT", b"REPLY", b"ON"], [b"XLEN", b"s"],
    ])  # fmt: skip
    assert client.receive() == ("+", b"OK")
    assert client.receive() == 1
    assert client.arrived() == []


@pytest.mark.parametrize(
    "command",
    [
        b"PING",
        b"NOSUCH",
        b"XLEN",
        b"XADD s * a 1",
        b"CLIENT REPLY SKIP",
        b"RESET",
        b"XREAD BLOCK 1 STREAMS n $",
    ],
)
def test_reply_skip(server: Running, command: bytes) -> None:
    client = dial(server.port)
    client.send([[b"CLIENT", b"REPLY", b"SKIP"], command.split(), [b"ECHO", b"1"], [b"ECHO", b"2"]])
    if command.startswith(b"CLIENT"):  # asks for another one
        assert client.receive() == b"2"
    else:
        assert [client.receive(), client.receive()] == [b"1", b"2"]


def test_a_client_without_replies_takes_no_memory(server: Running) -> None:
    client, other = dial(server.port), dial(server.port)
    log = inside.log(server.db)  # what a reply rests on is of it
    assert other.call(b"PING") == ("+", b"PONG")
    client.send([[b"CLIENT", b"REPLY", b"OFF"]])
    before = sys.getrefcount(log)
    client.send([[b"XADD", b"s", b"*", b"a", b"1"]] * 1000)
    until(lambda: other.call(b"XLEN", b"s") == 1000)
    assert sys.getrefcount(log) < before + 100


def test_reply_skip_is_over_after_a_message_too(server: Running) -> None:
    client = dial(server.port)
    client.send([words.split() for words in (b"CLIENT REPLY SKIP", b"SUBSCRIBE c", b"PING 1")])
    assert [client.receive(), client.receive()] == [[b"subscribe", b"c", 1], [b"pong", b"1"]]


def test_more_clients_than_there_may_be_files(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused in the words of Redis, not accepted and ignored."""
    monkeypatch.setattr("tidelog.server.server.resource.getrlimit", lambda which: (200, 200))
    running = start(maxclients=1000)
    client = dial(running.port)
    refused = ("-", b"ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not "
               b"able to handle the specified number of clients, try with 168")  # fmt: skip
    assert calls(client, "CONFIG SET maxclients 169", "CONFIG SET maxclients 168 hz 20") == [
        refused, ("+", b"OK"),
    ]  # fmt: skip
    assert calls(client, "CONFIG SET maxclients 1000", "CONFIG GET maxclients") == [
        refused, [b"maxclients", b"168"],
    ]  # fmt: skip
    assert running.server.clients_max == 168


# --- the log


def test_who_comes_and_goes_is_in_the_log(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "TRIAL_S", 0.01)
    with caplog.at_level(VERBOSE, "tidelog.server"):
        running = start(maxclients=1)
        client = dial(running.port)
        calls(client, "CLIENT SETNAME shop")
        dial(running.port).rest()
        client.close()
        until(lambda: not running.server.sessions)
    addr = r"127\.0\.0\.1:\d+"
    said = [row.getMessage() for row in caplog.records if row.levelno == VERBOSE]
    for line, pattern in zip(
        said,
        (
            rf"client 1 connected from {addr}",
            rf"refused {addr}: ERR max number of clients reached",
            rf"client 1 \({addr}\) named shop disconnected after \d\.\d+ s",
        ),
        strict=True,
    ):
        assert re.fullmatch(pattern, line)


# --- PAUSE


def test_pause_holds_all_commands_back(server: Running) -> None:
    asking, other = dial(server.port), dial(server.port)
    began = time.monotonic()
    assert asking.call(b"CLIENT", b"PAUSE", b"300") == ("+", b"OK")
    assert other.call(b"PING") == ("+", b"PONG")
    assert time.monotonic() - began > 0.28


def test_unpause(server: Running) -> None:
    asking, other = dial(server.port), dial(server.port)
    assert asking.call(b"CLIENT", b"PAUSE", b"600000", b"WRITE") == ("+", b"OK")
    other.begin(b"SET", b"k", b"v")
    until(lambda: server.server._pause.postponed)
    assert other.arrived() == []
    assert asking.call(b"CLIENT", b"UNPAUSE") == ("+", b"OK")
    assert other.receive() == ("+", b"OK")


def test_a_shorter_pause_does_not_end_a_longer_one(server: Running) -> None:
    admin, client = dial(server.port), dial(server.port)
    calls(admin, "CLIENT PAUSE 100000 WRITE", "CLIENT PAUSE 1 WRITE")
    client.begin(b"SET", b"a", b"1")
    assert calls(admin, "WAIT 1 50") == [0]  # longer than the second one
    assert client.arrived() == []
    calls(admin, "CLIENT UNPAUSE")
    assert client.receive() == ("+", b"OK")


def test_pause_of_writes(server: Running) -> None:
    asking, other = dial(server.port), dial(server.port)
    began = time.monotonic()
    assert asking.call(b"CLIENT", b"PAUSE", b"200", b"WRITE") == ("+", b"OK")
    assert other.call(b"PING") == ("+", b"PONG")
    assert other.call(b"XLEN", b"s") == 0
    other.begin(b"XADD", b"s", b"1-1", b"a", b"1")
    other.begin(b"XLEN", b"s")
    assert other.receive() == b"1-1"
    assert time.monotonic() - began > 0.15
    assert other.receive() == 1


def test_pause_of_writes_and_transactions(server: Running) -> None:
    """Held back is what would write or publish, which is known when EXEC comes (as in Redis)."""
    asking, reading, writing = (dial(server.port) for _ in range(3))
    calls(writing, "MULTI", "SET a 1")
    calls(reading, "MULTI", "SET a 2", "DISCARD", "MULTI", "GET a")
    assert calls(asking, "CLIENT PAUSE 600000 WRITE") == [("+", b"OK")]
    assert calls(reading, "EXEC", "MULTI", "EXEC") == [[None], ("+", b"OK"), []]
    for client, command in ((writing, b"EXEC"), (reading, b"MULTI")):
        client.begin(command)
    assert reading.receive() == ("+", b"OK")
    reading.send([[b"PUBLISH", b"c", b"x"], [b"EXEC"]])
    until(lambda: len(server.server._pause.postponed) == 2)
    assert reading.arrived() == writing.arrived() == []
    assert calls(asking, "CLIENT UNPAUSE") == [("+", b"OK")]
    assert writing.receive() == [("+", b"OK")]
    assert [reading.receive() for _ in range(2)] == [("+", b"QUEUED"), [0]]


def test_redis_py(server: Running) -> None:
    for protocol in (2, 3):
        with server.client(protocol=protocol, client_name="me") as client:
            found = client.client_info()
            assert found["name"] == "me" and found["lib-name"].startswith("redis-py")
            assert str(found["resp"]) == str(protocol)
            assert str(found["id"]) == str(client.client_id())
            assert any(each["name"] == "me" for each in client.client_list())
            assert client.client_getname() in (b"me", "me")
            assert client.client_no_evict("ON") and client.client_no_touch("ON")
            assert client.client_kill_filter(_id="999999") == 0
            tracking = client.client_trackinginfo()
            assert b"off" in (tracking[b"flags"] if isinstance(tracking, dict) else tracking[1])


def test_no_touch_leaves_keys_as_idle_as_they_are(start: Start) -> None:
    clock = Clock()
    running = start(clock=clock)
    client, other = dial(running.port), dial(running.port)
    calls(client, "SET k v", "GET k", "XADD s 1-1 a b", "XLEN s", "CLIENT NO-TOUCH ON")
    clock.advance(100)
    assert calls(client, "GET k", "XRANGE s - +", "XREAD STREAMS s 0")[0] == b"v"
    assert calls(other, "OBJECT IDLETIME k", "OBJECT IDLETIME s") == [100, 100]
    calls(client, "CLIENT NO-TOUCH OFF", "GET k", "XLEN s")
    assert calls(other, "OBJECT IDLETIME k", "OBJECT IDLETIME s") == [0, 0]
