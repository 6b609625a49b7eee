"""Signing in, and ACL over connections: beside a real redis-server 7.0, and through redis-py."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests import inside
from tests.oracle.server import EIGHT, RedisServer
from tests.oracle.wire import Connection, Form
from tests.server.conftest import Running, Start
from tests.server.real_redis import as_of_8, real_redis
from tests.server.wire import Client, calls, connect

import tidelog
from tidelog.server.config.config import Config
from tidelog.server.serving import Serving

CLOSED = "closed"


@pytest.fixture
def redis7() -> Iterator[RedisServer]:
    """A new one for each test: they change the default user."""
    with real_redis(EIGHT) as (server, _):
        yield server


Dial = Callable[[Running], Client]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connects, and closes in the end."""
    with ExitStack() as stack:

        def begin(server: Running) -> Client:
            client = connect(server.port)
            stack.callback(client.close)
            return client

        yield begin


def words(text: str) -> list[bytes]:
    return [word.encode() for word in shlex.split(text)]


def play(begin: Callable[[], Connection], script: str) -> list[tuple[str, Form]]:
    """Lines `name: command`, each name a connection of its own: every command with its reply."""
    lines: dict[str, Connection] = {}
    heard: list[tuple[str, Form]] = []
    for row in script.strip().splitlines():
        name, _, text = row.strip().partition(": ")
        if name not in lines:
            lines[name] = begin()
        try:
            reply = lines[name].call(*words(text))
        except (ConnectionError, OSError):
            reply = CLOSED
        heard.append((row.strip(), told(text, reply)))
    for line in lines.values():
        line.close()
    return heard


def told(text: str, reply: Form) -> Form:
    """The part of a reply that the two must have in common."""
    if text.upper().startswith("HELLO") and isinstance(reply, list):
        at = reply.index(b"version")
        assert isinstance(reply[reply.index(b"id") + 1], int)
        return reply[:at] + reply[at + 2 : 6] + reply[8:-1]  # without the modules of that server
    if text.upper().startswith("ACL CAT ") and isinstance(reply, list):
        reply.sort()
    return reply


# fmt: off
SCRIPTS = {
    "without a password": """
        a: AUTH x
        a: AUTH default x
        a: AUTH default x y
        a: AUTH nobody x
        a: AUTH
        a: ACL WHOAMI
        a: HELLO
        a: HELLO 2
        a: HELLO x
        a: HELLO 1
        a: HELLO 4
        a: HELLO 99999999999999999999
        a: HELLO 2 foo
        a: HELLO 2 AUTH
        a: HELLO 2 AUTH bob
        a: HELLO 2 AUTH bob no
        a: HELLO 2 SETNAME 'a b'
        a: HELLO 2 SETNAME
        a: HELLO 2 SETNAME ann
        a: CLIENT GETNAME
        a: HELLO 2 SETNAME 'a b' AUTH x y
        a: CLIENT GETNAME
        a: QUIT
        a: PING""",
    "a password for the default user": """
        a: CONFIG SET requirepass secret
        a: GET x
        b: GET x
        b: PING
        b: NOTHING
        b: GET
        b: XADD
        b: MULTI
        b: ACL WHOAMI
        b: ACL NOTHING
        b: HELLO
        b: HELLO 3
        b: HELLO 2 SETNAME x
        b: HELLO 2 AUTH default wrong
        b: HELLO 3 foo
        b: AUTH wrong
        b: AUTH default wrong
        b: RESET
        b: GET x
        b: AUTH secret
        b: GET x
        b: CLIENT GETNAME
        b: AUTH wrong
        b: GET x
        b: RESET
        b: GET x
        b: HELLO 2 AUTH default secret SETNAME ann
        b: CLIENT GETNAME
        b: ACL LIST
        c: QUIT
        c: PING
        d: CONFIG GET requirepass
        a: CONFIG SET requirepass other
        b: GET x
        b: AUTH secret
        d: AUTH secret
        d: AUTH other
        a: CONFIG SET requirepass ''
        e: GET x
        e: AUTH other
        a: ACL LIST""",
    "named users": """
        a: ACL SETUSER bob on >pw ~a* &c* +get +set +publish +acl|whoami +multi +exec +xread +mget
        a: ACL SETUSER off >pw +@all
        b: AUTH bob no
        b: ACL WHOAMI
        b: AUTH off pw
        b: AUTH bob pw
        b: ACL WHOAMI
        b: GET a
        b: SET a 1
        b: GET b
        b: MGET a b
        b: DEL a
        b: ACL LIST
        b: ACL
        b: ACL nosuch
        b: NOTHING
        b: DEL
        b: PUBLISH c x
        b: PUBLISH d x
        b: XREAD STREAMS a b 0 0
        b: XREAD STREAMS ax a1 0 0
        b: AUTH default x
        b: ACL WHOAMI
        b: AUTH bob wrong
        b: ACL WHOAMI
        a: DEL a
        a: ACL DELUSER bob off""",
    "a subscription that another user made": """
        a: ACL SETUSER bob on >pw ~* &* +@all
        a: ACL SETUSER weak on >pw ~* resetchannels +@all
        b: AUTH bob pw
        b: MULTI
        b: SUBSCRIBE c
        b: AUTH weak pw
        b: ACL SETUSER eve on
        b: ACL DELUSER eve
        b: ACL WHOAMI
        b: EXEC
        a: ACL SETUSER eve on
        a: ACL DELUSER eve
        a: PUBSUB NUMSUB c""",
    "in a transaction": """
        a: ACL SETUSER bob on >pw ~a* &c* +@all -del
        b: AUTH bob pw
        b: MULTI
        b: GET a
        b: GET b
        b: EXEC
        b: MULTI
        b: DEL a
        b: EXEC
        b: MULTI
        b: NOTHING
        b: RESET
        b: EXEC
        b: ACL WHOAMI
        b: AUTH bob pw
        b: MULTI
        b: GET a1
        b: XLEN a1
        b: DBSIZE
        a: ACL SETUSER bob -dbsize resetkeys ~a2
        b: EXEC
        b: MULTI
        b: AUTH default x
        b: ACL WHOAMI
        b: HELLO 2
        b: DISCARD
        a: ACL DELUSER bob""",
    "an EXEC that is refused": """
        a: ACL SETUSER bob on nopass ~* &* +@all -exec
        b: AUTH bob x
        b: EXEC
        b: MULTI
        b: GET a
        b: EXEC
        b: GET a
        c: SUBSCRIBE s
        c: EXEC
        c: PING
        a: ACL DELUSER bob
        a: CONFIG SET requirepass pw
        d: EXEC
        d: MULTI
        d: EXEC
        a: CONFIG SET requirepass ''""",
    "what holds at once": """
        a: ACL SETUSER bob on >pw ~* +get
        b: AUTH bob pw
        b: GET a
        a: ACL SETUSER bob -get +set
        b: GET a
        b: SET a 1
        a: ACL SETUSER bob ~b
        a: ACL SETUSER bob resetkeys ~b
        b: SET a 1
        a: ACL SETUSER bob off
        b: SET b 1
        c: AUTH bob pw
        a: ACL SETUSER bob on resetpass
        c: AUTH bob pw
        c: AUTH bob ''
        a: ACL SETUSER bob nopass
        c: AUTH bob anything
        a: ACL SETUSER bob reset
        b: SET b 1
        b: AUTH default x
        b: DEL a b
        a: ACL DELUSER bob
        b: GET a
        c: GET a""",
    "the default user": """
        a: ACL SETUSER default -del
        a: DEL x
        b: DEL x
        a: ACL SETUSER default +del off
        a: GET x
        b: GET x
        c: GET x
        c: AUTH default x
        c: AUTH x
        a: ACL SETUSER default on >pw
        c: GET x
        c: AUTH pw
        c: GET x
        a: ACL SETUSER default nopass
        d: GET x
        a: ACL SETUSER default reset
        a: GET x
        d: AUTH x
        d: AUTH default x
        d: PING""",
    "commands of ACL": """
        a: ACL
        a: ACL nosuch
        a: ACL HELP
        a: ACL HELP x
        a: ACL CAT
        a: ACL CAT nosuch
        a: ACL CAT @stream
        a: ACL CAT a b
        a: ACL CAT transaction
        a: ACL GENPASS 0
        a: ACL GENPASS 4097
        a: ACL GENPASS -1
        a: ACL GENPASS x
        a: ACL GENPASS 1 2
        a: ACL LOAD
        a: ACL SAVE
        a: ACL LOAD x
        a: ACL USERS
        a: ACL USERS x
        a: ACL WHOAMI
        a: ACL LIST
        a: ACL LIST x
        a: ACL LOG RESET
        a: ACL LOG
        a: ACL LOG 1
        a: ACL LOG x
        a: ACL LOG -1
        a: ACL LOG 1 2
        a: ACL SETUSER
        a: ACL SETUSER 'a b'
        a: ACL SETUSER jim
        a: ACL GETUSER jim
        a: ACL SETUSER jim on >pw >pw2 ~a %R~b &c +@read
        a: ACL GETUSER jim
        a: acl getuser jim
        a: ACL SETUSER jim +foo
        a: ACL SETUSER jim foo
        a: ACL SETUSER Jim on nopass allkeys
        a: ACL USERS
        a: ACL GETUSER nobody
        a: ACL GETUSER default
        a: ACL DELUSER
        a: ACL DELUSER default
        a: ACL DELUSER nobody default
        a: ACL DRYRUN jim get a
        a: ACL DRYRUN jim get x
        a: ACL DRYRUN jim get
        a: ACL DRYRUN jim del a
        a: ACL DRYRUN jim nosuch
        a: ACL DRYRUN nobody get a
        a: ACL DRYRUN jim acl
        a: ACL DRYRUN jim acl list
        a: ACL DRYRUN jim acl nosuch
        a: ACL DRYRUN jim acl|list
        a: ACL DRYRUN jim acl list x
        a: ACL DRYRUN jim
        a: ACL DRYRUN Jim auth x
        a: ACL DRYRUN default XREAD STREAMS a 0
        a: ACL DELUSER jim jim Jim nobody
        a: ACL USERS""",
}
# fmt: on


@pytest.mark.parametrize("name", SCRIPTS)
def test_as_in_redis(server: Running, redis7: RedisServer, name: str) -> None:
    theirs = [(line, as_of_8(reply)) for line, reply in play(redis7.connect, SCRIPTS[name])]
    assert play(lambda: connect(server.port), SCRIPTS[name]) == theirs


def test_what_a_failed_hello_leaves(server: Running, dial: Dial) -> None:
    """Nothing, as in 7.2 and later; 7.0 goes through its options one by one."""
    client = dial(server)
    calls(client, "ACL SETUSER bob on >pw +@all")
    assert calls(client, "HELLO 3 SETNAME x AUTH bob pw foo", "HELLO 3 SETNAME x AUTH bob no") == [
        ("-", b"ERR Syntax error in HELLO option 'foo'"),
        ("-", b"WRONGPASS invalid username-password pair or user is disabled."),
    ]
    assert calls(client, "CLIENT GETNAME", "ACL WHOAMI", "HELLO")[:2] == [None, b"default"]


def test_names_in_hello_as_resp3_maps(server: Running) -> None:
    client: Any = server.client(protocol=3)
    told = client.execute_command("HELLO", "3", "SETNAME", "ann")
    assert told[b"server"] == b"redis" and told[b"version"] == b"8.8.0" and told[b"proto"] == 3
    assert told[b"id"] == client.client_id() and told[b"modules"] == []
    assert (told[b"mode"], told[b"role"]) == (b"standalone", b"master")
    assert client.client_getname() == b"ann"
    assert client.execute_command("RESET")


# --- through redis-py


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(server: Running, redis7: RedisServer, protocol: int) -> None:
    seen = []
    for client in (
        server.client(protocol=protocol, decode_responses=True),
        redis.Redis(unix_socket_path=str(redis7.socket), protocol=protocol, decode_responses=True),
    ):
        with client:
            assert client.acl_setuser(
                "bob",
                enabled=True,
                passwords=["+pw", "+other"],
                keys=["a*"],
                channels=["c"],
                categories=["+@read"],
            )
            user: Any = client.acl_getuser("bob")
            user["flags"] = [flag for flag in user["flags"] if flag in ("on", "off", "nopass")]
            seen.append(
                [
                    user,
                    client.acl_getuser("nobody"),
                    client.acl_list(),
                    client.acl_users(),
                    client.acl_whoami(),
                    client.acl_cat(),
                    set(client.acl_cat("transaction")),
                    client.acl_dryrun("bob", "get", "a1"),
                    client.acl_dryrun("bob", "get", "b1"),
                    client.acl_help()[:-1],  # the last line is another one since 7.2
                    len(client.acl_genpass()),
                    len(client.acl_genpass(9)),
                    client.acl_deluser("bob", "nobody"),
                ]
            )
    assert seen[0] == seen[1]


def test_signing_in_with_redis_py(start: Start) -> None:
    server = start(requirepass="secret")
    once: Any = {"retry": Retry(NoBackoff(), 0)}
    with pytest.raises(redis.AuthenticationError):
        server.client(**once).ping()
    with pytest.raises(redis.AuthenticationError):
        server.client(password="wrong", **once).ping()
    with server.client(password="secret", protocol=3) as client:
        rules: Any = {"keys": ["*"], "categories": ["+@all"], "commands": ["-del"]}
        assert client.acl_setuser("bob", enabled=True, passwords=["+pw"], **rules)
        assert client.acl_whoami() == b"default"
    with server.client(username="bob", password="pw", protocol=3) as client:
        assert client.acl_whoami() == b"bob"
        client.xadd("s", {"a": "1"})
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.delete("s")


def test_passwords_are_told_to_nobody(
    server: Running, caplog: pytest.LogCaptureFixture, dial: Dial
) -> None:
    caplog.set_level(0)
    with server.client() as client:
        client.config_set("slowlog-log-slower-than", 0)
        client.acl_setuser(
            "bob", enabled=True, passwords=["+hidden1"], keys=["*"], commands=["+get"]
        )
        for call in (
            "AUTH bob hidden1", "AUTH bob hidden2", "HELLO 2 AUTH bob hidden2", "HELLO 2 AUTH default hidden3",
            "ACL SETUSER bob >hidden4", "ACL SETUSER bob <hidden5", "ACL SETUSER bob #hidden6",
            "ACL SETUSER bob >hidden7 foo",
        ):  # fmt: skip
            raw = dial(server)
            assert b"hidden" not in repr(calls(raw, call)).encode()
        told = [
            client.acl_list(),
            client.acl_getuser("bob"),
            client.acl_log(),
            client.slowlog_get(100),
        ]
        told += [client.client_list(), client.info("everything")]
        assert "hidden" not in repr(told)
    assert "hidden" not in caplog.text


# --- the log


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_log(server: Running, protocol: int, dial: Dial) -> None:
    with server.client(protocol=protocol, decode_responses=True) as client:
        calls(dial(server), "ACL SETUSER bob on >pw ~a &c +@all -del")
        bob = dial(server)
        calls(
            bob,
            "AUTH bob pw",
            "DEL a",
            "GET b",
            "GET b",
            "MGET a b",
            "PUBLISH d x",
            "MULTI",
            "DEL a",
            "DISCARD",
        )
        calls(bob, "MULTI", "XLEN a", "EXEC", "AUTH bob no", "AUTH ann no", "HELLO 3 AUTH bob no")
        shown: Any = client.acl_log()
        assert [
            (e["count"], e["reason"], e["context"], e["object"], e["username"]) for e in shown
        ] == [
            (1, "auth", "toplevel", "HELLO", "bob"),
            (1, "auth", "toplevel", "AUTH", "ann"),
            (1, "auth", "toplevel", "AUTH", "bob"),
            (1, "command", "multi", "del", "bob"),
            (1, "channel", "toplevel", "d", "bob"),
            (3, "key", "toplevel", "b", "bob"),
            (1, "command", "toplevel", "del", "bob"),
        ]
        assert all(0 <= float(entry["age-seconds"]) < 60 for entry in shown)
        clients = [entry["client-info"] for entry in shown]
        if protocol == 3:  # redis-py leaves them as they are
            clients = [dict(pair.split("=", 1) for pair in client.split()) for client in clients]
        assert clients[0]["cmd"] == "hello" and clients[3]["user"] == "bob"
        assert len(client.acl_log(2)) == 2
        assert client.acl_log_reset() and client.acl_log() == []


# --- those who are connected


def ended(client: Connection) -> bool:
    """Whether the server closes the connection soon."""
    try:
        while True:
            client.receive()
    except ConnectionError:
        return True


def test_sessions_of_a_user_that_is_removed_are_closed(server: Running, dial: Dial) -> None:
    admin, bob, blocked, ann = (dial(server) for _ in range(4))
    calls(admin, "ACL SETUSER bob on nopass ~* &* +@all", "ACL SETUSER ann on nopass ~* &* +@all")
    for client, name in ((bob, b"bob"), (blocked, b"bob"), (ann, b"ann")):
        calls(client, [b"AUTH", name, b"x"])
    blocked.begin(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$")
    assert calls(admin, "ACL DELUSER bob") == [1]
    assert ended(bob) and ended(blocked)
    assert calls(ann, "ACL WHOAMI") == [b"ann"]
    # A client that removes its own user gets the reply, and no command that it sent behind it is run.
    ann.send([words("ACL DELUSER ann"), words("SET left behind")])
    assert ann.receive() == 1 and ended(ann)
    calls(admin, "ACL SETUSER ann on nopass ~* &* +@all")
    ann = dial(server)
    calls(ann, "AUTH ann x", "MULTI", "PING", "ACL DELUSER ann", "ECHO a")
    assert ann.call(b"EXEC") == [("+", b"PONG"), 1, b"a"] and ended(ann)
    assert calls(admin, "EXISTS left", "ACL USERS") == [0, [b"default"]]
    assert server.client().client_list(_type="normal")


def test_subscribers_who_lost_their_channel_are_closed(server: Running, dial: Dial) -> None:
    admin, channel, pattern, kept = (dial(server) for _ in range(4))
    calls(admin, "ACL SETUSER bob on nopass &c* &d* +@all")
    for client, what in (
        (channel, "SUBSCRIBE c1"),
        (pattern, "PSUBSCRIBE c*"),
        (kept, "SUBSCRIBE d1"),
    ):
        calls(client, "AUTH bob x", what)
    calls(admin, "ACL SETUSER bob resetchannels &d*")
    assert ended(channel) and ended(pattern)
    assert calls(admin, "PUBLISH d1 x") == [1]
    assert kept.receive() == [b"message", b"d1", b"x"]


def test_a_changed_user_is_asked_again_at_once(server: Running, dial: Dial) -> None:
    """A session of a user who may do everything takes a short cut; not after the change."""
    admin, bob = dial(server), dial(server)
    calls(admin, "ACL SETUSER bob on nopass ~* &* +@all")
    assert calls(bob, "AUTH bob x", "XADD s 1-1 a 1") == [("+", b"OK"), b"1-1"]
    calls(admin, "ACL SETUSER bob -xadd")
    assert calls(bob, "XADD s * a 1") == [
        ("-", b"NOPERM User bob has no permissions to run the 'xadd' command")
    ]
    calls(admin, "ACL SETUSER bob +xadd")
    assert calls(bob, "XADD s 1-2 a 1") == [b"1-2"]


def test_half_of_a_pipeline_after_quit_is_not_run(server: Running, dial: Dial) -> None:
    client = dial(server)
    client.send([[b"SET", b"a", b"1"], [b"QUIT"], [b"SET", b"a", b"2"]])
    assert client.rest() == b"+OK\r\n+OK\r\n"
    with server.client() as other:
        assert other.get("a") == b"1"


def test_reset_ends_everything(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 60) as link:
        link.sendall(
            b"HELLO 3 SETNAME ann\r\nSELECT 3\r\nWATCH k\r\nSUBSCRIBE c\r\nCLIENT REPLY OFF\r\nRESET\r\n"
        )
        link.sendall(b"CLIENT GETNAME\r\nSET k 1\r\nMULTI\r\nDBSIZE\r\nEXEC\r\n")
        data = b""
        while not data.endswith(b"*1\r\n:1\r\n"):
            data += link.recv(1 << 16)
        assert data.endswith(b"+RESET\r\n$-1\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n")
    with server.client() as other:
        assert other.get("k") == b"1"
        assert other.pubsub_numsub("c") == [(b"c", 0)]


# --- keeping users


def test_users_of_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "tidelog.toml"
    file.write_text('users = ["user bob on >pw ~a* +@read"]\n')

    def serve(db: tidelog.Store) -> Serving:
        config = Config()
        config.load(file)
        config.start({"port": 0}, fsync=db.fsync)
        return Serving(inside.core(db), config)

    with tidelog.open(tmp_path / "store") as db:
        with serve(db) as server, closing(connect(server.port)) as client:
            assert calls(client, "AUTH bob pw", "GET a") == [("+", b"OK"), None]
            made = calls(
                client,
                "AUTH default x",
                "ACL SETUSER ann on >hidden %R~b &c +xadd",
                "CONFIG REWRITE",
            )
            assert made == [("+", b"OK")] * 3
            lines = calls(client, "ACL LIST")
        assert "hidden" not in file.read_text() and ">pw" not in file.read_text()
        with serve(db) as server, closing(connect(server.port)) as client:
            assert calls(client, "ACL LIST", "AUTH ann hidden") == [*lines, ("+", b"OK")]
