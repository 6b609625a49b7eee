"""Replies that changed after 7.0, or that few clients ask for: byte for byte those of a real 8.2."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from tests.oracle.server import EIGHT, RedisServer
from tests.oracle.wire import encode
from tests.server.conftest import Running
from tests.server.real_redis import Raw, real_redis

ONLY_A = "ACL SETUSER only ON >pw ~a* &a* +@all -@admin -get"


@pytest.fixture(scope="module")
def eight() -> Iterator[RedisServer]:
    with real_redis(EIGHT) as (server, _):
        yield server


def sent(*lines: str) -> bytes:
    return b"".join(encode([word.encode() for word in shlex.split(line)]) for line in lines)


@pytest.mark.parametrize(
    "lines",
    [
        ["COMMAND GETKEYS"],
        ["COMMAND GETKEYS MULTI"],
        ["COMMAND GETKEYS nosuch a"],
        ["COMMAND GETKEYS XGROUP"],
        ["COMMAND GETKEYS XGROUP CREATE s g 0"],
        ["COMMAND GETKEYS EVAL x 0"],
        ["COMMAND GETKEYS EVAL x 2 a b c"],
        ["COMMAND GETKEYS EVAL x 2 a"],
        ["COMMAND GETKEYS EVAL x -1 a"],
        ["COMMAND GETKEYS EVAL x many a"],
        ["COMMAND GETKEYS EVALSHA x 3 a b c d"],
        ["COMMAND GETKEYS GET"],
        ["COMMAND GETKEYSANDFLAGS EVAL x 1 a"],
        ["COMMAND GETKEYSANDFLAGS SET a 1"],
        ["COMMAND INFO DUMP RESTORE", "COMMAND LIST FILTERBY PATTERN dump"],
        ["COMMAND GETKEYSANDFLAGS RESTORE a 0 x", "COMMAND GETKEYSANDFLAGS DUMP a"],
        ["ACL SETUSER only reset +restore +dump %R~r %W~w", "ACL DRYRUN only RESTORE w 0 x",
         "ACL DRYRUN only RESTORE r 0 x", "ACL DRYRUN only DUMP w", "ACL DRYRUN only DUMP r"],
        ["MULTI", "RESTORE s 0 x", "DUMP s", "RESTORE s 0", "EXEC"],
        [*(f"EVALSHA {'f' * 40} {keys}" for keys in ("x", "-1", "5", "0")), "EVALSHA x 5", "EVALSHA x y"],
        ["SCAN -1", "SCAN -1 COUNT 0", "SCAN ' 1'", "SCAN ''", "SCAN '1 '", "SCAN -01", "SCAN -0"],
        ["SCAN +0", "SCAN 00"],
        [f"ACL CAT {'a' * 200}", "ACL CAT nosuch"],
        ["SCAN 18446744073709551616", f"SCAN {'0' * 30}1", f"SCAN {'1' * 5000}"],
        ["CLIENT SETINFO LIB-NAME 'a b'", "CLIENT SETINFO lib-Ver 'a b'"],
        ["MULTI", "SUBSCRIBE news", "PING", "PING x", "EXEC", "PING", "UNSUBSCRIBE", "PING"],
        ["MULTI", "PING", "PING x", "PING x y", "EXEC"],
        ["MULTI", "PING", "SET k v", "PING", "GET k", "EXEC", "DEL k"],
        [ONLY_A, "ACL DRYRUN only GET a", "ACL DRYRUN only XADD b * f v", "ACL DRYRUN only XLEN a"],
        [ONLY_A, "ACL DRYRUN only PUBLISH b x", "ACL DRYRUN nobody GET a", "ACL GETUSER only"],
        [ONLY_A, "AUTH only pw", "GET a", "SET b 1", "PUBLISH b x", "ACL LIST", "MULTI", "GET a", "SET b 1", "EXEC"],
        ["ACL SETUSER plain", "ACL GETUSER plain", "ACL SETUSER plain skip-sanitize-payload", "ACL GETUSER plain"],
        ["ACL SETUSER plain reset", "ACL GETUSER plain"],
    ],
    ids=" | ".join,
)  # fmt: skip
def test_the_same_bytes(lines: list[str], server: Running, eight: RedisServer) -> None:
    replies = []
    for place in (server.port, eight):
        with Raw(place) as client:
            replies.append(client.ask(sent(*lines)))
        with Raw(place) as client:
            client.ask(sent("ACL DELUSER only plain", "DEL k"))
    assert replies[0] == replies[1]


@pytest.mark.parametrize("mode", ["OFF", "SKIP", "ON"])
def test_a_protocol_error_keeps_to_client_reply(mode: str, server: Running) -> None:
    """Redis says nothing either; it does not even close the connection."""
    with Raw(server.port) as client:
        told = client.last(sent(f"CLIENT REPLY {mode}") + b"*x\r\n")
    bad = b"-ERR Protocol error: invalid multibulk length\r\n"
    assert told == (b"+OK\r\n" + bad if mode == "ON" else b"")
