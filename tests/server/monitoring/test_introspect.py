"""COMMAND beside a real redis-server 7.0: every command that both have is described in the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.server import EIGHT
from tests.oracle.wire import Connection, encode
from tests.server.conftest import Running
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.real_redis import Raw, as_of_8, real_redis

from tidelog.server.commands import docs
from tidelog.server.commands.describe import FLAGS, names
from tidelog.server.handlers import COMMANDS

# Of their containers, so that those differ in what is below them.
YOUNGER = {b"client|setinfo", b"client|no-touch"}
NOT_HERE = {
    b"latency|doctor",
    b"latency|graph",
    b"function|dump",
    b"function|restore",
    b"script|debug",
}
CONTAINERS = {b"client", b"latency", b"debug", b"function", b"script"}
DIFFERENT = {
    b"wait",  # blocking, by spec 17; Redis 7.0 says noscript
    b"replicaof",  # takes one more word, REPLACE
    b"slaveof",
    b"command|getkeys",  # takes one word less since 7.2, as here
    b"command|getkeysandflags",
}

GETKEYS = """
XADD a
XADD a * b c
XREAD STREAMS a b 0 0
XREAD STREAMS a b 0
XREAD STREAMS a b
XREAD STREAMS a 0 b
XREAD FOO a b 0
XREAD COUNT 2 BLOCK 5 streams a b 0 0
XREAD COUNT STREAMS STREAMS a 0
XREAD COUNT 1 STREAMS
XREAD COUNT 1 STREAMS a
XREAD COUNT STREAMS 1
XREADGROUP GROUP streams c STREAMS a b > >
XREADGROUP GROUP g streams STREAMS a b > >
XREADGROUP GROUP g c COUNT 1 a b > >
XREADGROUP GROUP g c NOACK BLOCK 1 STREAMS a >
XREADGROUP GROUP g c STREAMS STREAMS >
XREADGROUP GROUP g c BLOCK 1 STREAMS
XREADGROUP GROUP g c STREAMS a b
XGROUP CREATE s g $
XGROUP CREATE
XGROUP FOO s
XINFO STREAM s
XACK s g 1-1
XPENDING s g
MSET a b c d
MSET a b c
SET a b
SET a b GET
SET a GET
DEL a b c
COPY a b
RENAME a b
WATCH a b
OBJECT ENCODING x
MEMORY USAGE k
SWAPDB 0 1
PING x
SPUBLISH c m
SSUBSCRIBE c
SUNSUBSCRIBE
FOO x
CONFIG GET x
"""
REPLIES = """
COMMAND COUNT x
COMMAND LIST x
COMMAND LIST FILTERBY
COMMAND LIST FILTERBY FOO bar
COMMAND LIST FILTERBY MODULE foo
COMMAND LIST FILTERBY ACLCAT foo
COMMAND LIST FILTERBY ACLCAT stream x
COMMAND LIST FILTERBY PATTERN
COMMAND GETKEYS
COMMAND GETKEYS PING
COMMAND GETKEYSANDFLAGS PING
COMMAND INFO nosuch xgroup|nosuch
COMMAND DOCS nosuch
COMMAND NOSUCH
COMMAND HELP
COMMAND HELP x
"""


@pytest.fixture(scope="module")
def seven() -> Iterator[Any]:
    with real_redis() as (server, _):
        yield server


@pytest.fixture(scope="module")
def oracle() -> Iterator[Connection]:
    with real_redis(EIGHT) as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


def shared(seven: Connection) -> list[bytes]:
    """The commands that both have, containers with other subcommands aside."""
    there = set(seven.call(b"COMMAND", b"LIST"))
    return [name for name in names(COMMANDS) if name in there and name not in CONTAINERS]


@pytest.mark.parametrize("protocol", [2, 3])
def test_commands_are_described_in_the_same_bytes(
    server: Running, seven: Any, protocol: int
) -> None:
    different = []
    with Raw(seven) as raw:
        raw.ask(encode([b"HELLO", b"%d" % protocol]))
        link = seven.connect()
        names = set(shared(link)) - DIFFERENT
        link.close()
        for name in names:
            # Subcommands come in the order of a hash table there; each is compared by itself.
            if name in COMMANDS.table.containers and name != b"command":
                continue
            ask = encode([b"COMMAND", b"INFO", name])
            theirs = raw.ask(ask)
            ours = info_bytes(server.port, protocol, ask)
            if name == b"command":
                theirs, ours = theirs[:120], ours[:120]
            if ours != theirs:
                different.append((name, ours, theirs))
    assert different == []


def info_bytes(port: int, protocol: int, ask: bytes) -> bytes:
    client = dial(port)
    client.raw(encode([b"HELLO", b"%d" % protocol]) + encode([b"PING"]) + ask + encode([b"QUIT"]))
    return client.rest().partition(b"+PONG\r\n")[2].removesuffix(b"+OK\r\n")


def test_containers(server: Running, oracle: Connection) -> None:
    client = dial(server.port)
    for name in sorted(COMMANDS.table.containers - {b"debug", b"queue", b"tidelog"}):
        (ours,), (theirs,) = (each.call(b"COMMAND", b"INFO", name) for each in (client, oracle))
        assert ours[:9] == theirs[:9]
        below, there = ({row[0] for row in found[9]} for found in (ours, theirs))
        assert below - there <= YOUNGER and there - below <= NOT_HERE | {
            b"%b|%b" % (name, sub) for sub in (b"log", b"load", b"save", b"dryrun")
        }


@pytest.mark.parametrize("line", [line for line in GETKEYS.strip().splitlines()])
def test_where_keys_are(server: Running, oracle: Connection, line: str) -> None:
    client = dial(server.port)
    for ask in (b"GETKEYS", b"GETKEYSANDFLAGS"):
        words = [b"COMMAND", ask, *line.encode().split()]
        assert client.call(*words) == oracle.call(*words)


@pytest.mark.parametrize("line", REPLIES.strip().splitlines())
def test_replies(server: Running, oracle: Connection, line: str) -> None:
    words = line.encode().split()
    assert dial(server.port).call(*words) == as_of_8(oracle.call(*words))


def test_lists(server: Running, oracle: Connection) -> None:
    client = dial(server.port)
    ours = client.call(b"COMMAND", b"LIST")
    assert len(set(ours)) == len(ours) == len(names(COMMANDS))
    there = set(oracle.call(b"COMMAND", b"LIST"))
    for words in (
        [b"ACLCAT", b"stream"],
        [b"ACLCAT", b"SLOW"],
        [b"PATTERN", b"xr*"],
        [b"PATTERN", b"XINFO|*"],
    ):
        ask = [b"COMMAND", b"LIST", b"FILTERBY", *words]
        found, theirs = set(client.call(*ask)), set(oracle.call(*ask))
        assert found & there == theirs & set(ours)
    assert client.call(b"COMMAND", b"COUNT") == len(client.call(b"COMMAND"))
    assert client.call(b"COMMAND", b"COUNT") == sum(b"|" not in name for name in ours)


def test_commands_of_redis_8(server: Running) -> None:
    """Spec 17."""
    client = dial(server.port)
    rows = client.call(
        b"COMMAND", b"INFO", b"xackdel", b"xdelex", b"xcfgset", b"xnack", b"xidmprecord"
    )
    assert [row[:6] for row in rows] == [
        [b"xackdel", -6, [("+", b"write"), ("+", b"fast")], 1, 1, 1],
        [b"xdelex", -5, [("+", b"write"), ("+", b"fast")], 1, 1, 1],
        [b"xcfgset", -2, [("+", b"write"), ("+", b"fast")], 1, 1, 1],
        [b"xnack", -7, [("+", b"write"), ("+", b"fast")], 1, 1, 1],
        [b"xidmprecord", 5, [("+", b"write"), ("+", b"denyoom"), ("+", b"fast")], 1, 1, 1],
    ]
    for row in rows:
        assert row[6] == [("+", b"@write"), ("+", b"@stream"), ("+", b"@fast")]


def test_every_command_has_a_line_in_the_docs(server: Running) -> None:
    missing = [
        name for name in names(COMMANDS) if b"summary" not in (docs.describe(name, COMMANDS) or ())
    ]
    assert missing == []
    with server.client() as client:
        found = client.execute_command("COMMAND DOCS", "XADD", "xgroup", "nosuch")
    assert found[0] == b"XADD".lower() and b"5.0.0" in found[1]
    assert b"subcommands" in found[3]


def test_flags_are_known() -> None:
    for command in COMMANDS.table.commands.values():
        assert command.flags <= set(FLAGS)


def test_redis_py(server: Running) -> None:
    with server.client() as client:
        assert client.command_count() == len(client.command())
        assert client.command()["xadd"]["arity"] == -5
        assert client.command_getkeys(
            "XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", "b", ">", ">"
        ) in (["a", "b"], [b"a", b"b"])
