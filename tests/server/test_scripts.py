"""FUNCTION and SCRIPT: beside a real redis-server that has no functions and no scripts, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.wire import encode
from tests.server.conftest import Running, Start
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


RELEASE = "c3f8721cbb97f72bc19e972846bd7aaf91901658"
EXTEND = "a4e8783852e6b949f9ef3a97212805108459a890"
REACQUIRE = "1cac51482acf5858da00f6d685d68f886cd6b6b2"


def test_scripts_of_the_lock_have_their_place_in_a_transaction(server: Running) -> None:
    """Each sees what the commands before it did, and the commands after it see what it did."""
    client, other = dial(server.port), dial(server.port)
    lines = [
        "SET lock me NX PX 1000", f"EVALSHA {EXTEND} 1 lock me 5000 0", "PTTL lock",
        f"EVALSHA {REACQUIRE} 1 lock me 70000", "PTTL lock", f"EVALSHA {RELEASE} 1 lock you", "EXISTS lock",
        f"EVALSHA {RELEASE} 1 lock me", "EXISTS lock",
        f"EVALSHA {RELEASE} 1 lock me", "EVALSHA abc 1 lock me", f"EVALSHA {RELEASE} 2 lock me",
        f"EVALSHA {EXTEND} 1 a me 1 0", "SET a me", f"EVALSHA {REACQUIRE} 1 a me x", "TTL a",
    ]  # fmt: skip
    *_, done = calls(client, "MULTI", *lines, "EXEC")
    assert done[:2] == [("+", b"OK"), 1] and 5000 < done[2] <= 6000
    assert done[3] == 1 and 60000 < done[4] <= 70000
    assert done[5:10] == [0, 1, 1, 0, 0]
    assert done[10] == ("-", b"NOSCRIPT No matching script. Please use EVAL.")
    assert done[11][0] == "-" and b"redis-py's Lock" in done[11][1]
    assert done[12:] == [0, ("+", b"OK"), ("-", b"ERR value is not an integer or out of range"), -1]
    assert calls(client, "WATCH a") + calls(other, f"EVALSHA {RELEASE} 1 a me") == [("+", b"OK"), 1]
    assert calls(client, "MULTI", f"EVALSHA {RELEASE} 1 a me", "EXEC")[-1] == ("*-1",)


@pytest.mark.parametrize("transaction", [True, False])
def test_a_lock_of_redis_py_in_a_pipeline(server: Running, transaction: bool) -> None:
    client: Any = server.client()
    with client, client.pipeline(transaction=transaction) as pipe:
        lock = pipe.lock("lock", timeout=5)
        lock.acquire()
        pipe.exists("lock")
        lock.extend(5)
        pipe.set("a", "1")
        lock.release()
        pipe.exists("lock")
        assert pipe.execute() == [True, 1, 1, True, 1, 0]


def test_a_script_counts_as_a_write(start: Start) -> None:
    """CLIENT PAUSE WRITE delays it, and a follower refuses it."""
    running = start()
    client, other = dial(running.port), dial(running.port)
    assert calls(client, "SET lock me", "CLIENT PAUSE 60000 WRITE") == [("+", b"OK")] * 2
    other.begin(b"EVALSHA", RELEASE.encode(), b"1", b"lock", b"me")
    assert calls(client, "EXISTS lock", "CLIENT UNPAUSE") == [1, ("+", b"OK")]
    assert other.receive() == 1
    [reply, refused] = calls(client, "REPLICAOF 127.0.0.1 1", f"EVALSHA {RELEASE} 1 lock me")
    assert reply == ("+", b"OK") and refused[1].startswith(b"READONLY")
