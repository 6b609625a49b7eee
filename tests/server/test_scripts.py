"""FUNCTION and SCRIPT: beside a real redis-server that has no functions and no scripts, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.wire import encode
from tests.server.conftest import Running
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.real_redis import Raw, real_redis
from tests.server.wire import calls

SAME = """
FUNCTION
FUNCTION nosuch
FUNCTION FLUSH
function flush sync
FUNCTION FLUSH Async
FUNCTION FLUSH x
FUNCTION FLUSH SYNC x
FUNCTION LIST
FUNCTION LIST WITHCODE
FUNCTION LIST LIBRARYNAME x
FUNCTION LIST libraryname x withcode
FUNCTION LIST WITHCODE LIBRARYNAME withcode
FUNCTION LIST LIBRARYNAME
FUNCTION LIST foo
FUNCTION LIST WITHCODE WITHCODE
FUNCTION LIST LIBRARYNAME x LIBRARYNAME y
FUNCTION STATS x
FUNCTION DELETE
FUNCTION DELETE x
FUNCTION DELETE x y
FUNCTION KILL
FUNCTION KILL x
FUNCTION HELP x
SCRIPT
SCRIPT nosuch
SCRIPT FLUSH
script flush sync
SCRIPT FLUSH Async
SCRIPT FLUSH x
SCRIPT FLUSH SYNC x
SCRIPT EXISTS
SCRIPT EXISTS a
SCRIPT EXISTS a e0e1f9fabfc9d4800c877a703b823ac0578ff8db a
SCRIPT KILL
SCRIPT KILL x
SCRIPT HELP x
"""


@pytest.fixture(scope="module")
def seven() -> Iterator[Any]:
    with real_redis() as (server, _):
        yield server


@pytest.mark.parametrize("protocol", [2, 3])
def test_as_in_redis(server: Running, seven: Any, protocol: int) -> None:
    for line in SAME.strip().splitlines():
        words = line.encode().split()
        hello = encode([b"HELLO", b"%d" % protocol])
        with Raw(seven) as raw:
            raw.ask(hello)
            theirs = raw.ask(encode(words))
        client = dial(server.port)
        client.raw(hello + encode([b"PING"]) + encode(words) + encode([b"QUIT"]))
        ours = client.rest().partition(b"+PONG\r\n")[2].removesuffix(b"+OK\r\n")
        assert (line, ours) == (line, theirs)


def test_in_a_transaction_and_for_a_user(server: Running) -> None:
    """As redis-py and others call them when a suite starts; `@scripting` is what rules often take away."""
    admin, bob = dial(server.port), dial(server.port)
    assert (
        calls(admin, "MULTI", "FUNCTION FLUSH", "SET a 1", "SCRIPT FLUSH", "EXEC")[-1]
        == [
            ("+", b"OK"),
        ]
        * 3
    )
    calls(admin, "ACL SETUSER bob on nopass ~* &* +@all -@scripting")
    refused = calls(bob, "AUTH bob x", "FUNCTION LIST", "SCRIPT EXISTS a", "GET a")
    assert [answer[1].split()[0] for answer in refused[1:3]] == [b"NOPERM"] * 2
    assert refused[3] == b"1"


def test_with_redis_py(server: Running) -> None:
    for protocol in (2, 3):
        client: Any = server.client(protocol=protocol)
        with client:
            assert client.function_flush("ASYNC") and client.script_flush("SYNC")
            assert client.function_list() == [] and client.script_exists("a", "b") == [False, False]
            assert dict(client.function_stats()) if protocol == 3 else client.function_stats()
            assert client.function_stats() in (
                {b"running_script": None, b"engines": {}},
                [b"running_script", None, b"engines", []],
            )


def test_nobody_takes_a_script_for_stored(server: Running) -> None:
    client = dial(server.port)
    for line in (
        "EVAL_RO return 0", "FCALL f 0", "FCALL_RO f 0",
        "FUNCTION LOAD x", "FUNCTION RESTORE x", "FUNCTION DUMP",
    ):  # fmt: skip
        [answer] = calls(client, line)
        assert isinstance(answer, tuple) and answer[1].startswith(b"ERR unknown "), line
    for line in ("EVAL return 0", "EVAL return 1 a", "SCRIPT LOAD x"):
        [answer] = calls(client, line)
        assert isinstance(answer, tuple) and b"runs no scripts, except the three" in answer[1], line
    [answer] = calls(client, "EVALSHA abc 0")
    assert answer == ("-", b"NOSCRIPT No matching script. Please use EVAL.")
    [function] = calls(client, "FUNCTION HELP")
    assert not {("+", b"LOAD"), ("+", b"DUMP")} & set(function)
