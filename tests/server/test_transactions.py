"""MULTI, EXEC, WATCH and SELECT of sessions, beside a real redis-server: the same replies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from tests.oracle.server import Clock, OracleMissing, RedisServer, directory
from tests.server.conftest import Running, Start
from tests.server.wire import calls, connect


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    place = directory()
    try:
        try:
            found = RedisServer(place, Clock(place), "transactions")
        except OracleMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        yield found
        found.close()
    finally:
        shutil.rmtree(place)


SCRIPTS = [
    ["MULTI", "XADD s 1-1 a b", "XLEN s", "EXEC"],
    ["MULTI", "EXEC", "EXEC", "DISCARD", "MULTI", "MULTI", "DISCARD"],
    ["MULTI", "XADD s 1-1 a b", "NOSUCH x y", "XADD s 2-1 a b", "EXEC", "XLEN s"],
    ["MULTI", "XADD s", "EXEC"],
    ["MULTI", "SET k v", "XADD k 1-1 a b", "XADD s 1-1 a b", "EXEC", "GET k"],
    ["WATCH s", "XADD s 1-1 a b", "MULTI", "XLEN s", "EXEC", "MULTI", "XLEN s", "EXEC"],
    ["WATCH s", "MULTI", "WATCH t", "XADD s 1-1 a b", "EXEC"],
    ["WATCH s", "XADD s 1-1 a b", "UNWATCH", "MULTI", "XLEN s", "EXEC"],
    ["MULTI", "SELECT 1", "XADD s 1-1 a b", "EXEC", "XLEN s", "SELECT 0", "XLEN s"],
    ["MULTI", "SELECT 99", "XADD s 1-1 a b", "EXEC", "XLEN s"],
    ["SELECT 16", "SELECT -1", "SELECT x", "SELECT 3", "DBSIZE"],
    ["MULTI", "XREAD BLOCK 0 STREAMS s $", "XADD s 1-1 a b", "XREAD STREAMS s 0", "EXEC"],
    ["MULTI", "EXEC now", "EXEC", "XLEN s"],
    ["EXEC now", "DISCARD now", "MULTI now", "WATCH"],
    ["MULTI", "PING", "ECHO x", "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT GETNAME", "EXEC"],
    ["MULTI", "SWAPDB 0 1", "XADD s 1-1 a b", "EXEC", "SELECT 1", "XLEN s"],
    ["MULTI", "FLUSHALL", "XADD s 1-1 a b", "EXEC", "DBSIZE"],
    ["MULTI", "RESET", "EXEC", "PING"],
    ["MULTI", "SUBSCRIBE", "EXEC"],
    ["MULTI", "SAVE", "EXEC"],
    ["MULTI", "WAIT 0 0", "EXEC"],
    ["XGROUP CREATE s g 0 MKSTREAM", "MULTI", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "EXEC"],
    ["MULTI", "PUBLISH c m", "XADD s 1-1 a b", "CONFIG GET appendfsync-nothing", "EXEC"],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: " / ".join(script))
def test_scripts(server: Running, redis_server: RedisServer, script: list[str]) -> None:
    theirs = redis_server.connect()
    calls(theirs, "RESET", "FLUSHALL")
    ours = connect(server.port)
    try:
        assert calls(ours, *script) == calls(theirs, *script)
    finally:
        ours.close()
        theirs.close()


def test_a_change_by_the_owner_of_the_store_breaks_a_watch(server: Running) -> None:
    client = connect(server.port)
    calls(client, "WATCH s", "MULTI", "XLEN s")
    server.db.xadd("s", {"a": "b"})
    assert calls(client, "EXEC") == [("*-1",)]
    client.close()


def test_a_transaction_is_one_unit(server: Running) -> None:
    """Nobody sees a part of it, and its effects share a unit of the log."""
    client = connect(server.port)
    before = server.db.info()["next_lsn"]
    calls(client, "MULTI", "XADD s 1-1 a b", "XADD s 2-1 a b", "DEL s", "EXEC")
    assert server.db.info()["next_lsn"] > before
    assert server.db.exists("s") == 0
    client.close()


def test_a_large_transaction_is_refused_while_it_is_queued(start: Start) -> None:
    client = connect(start().port)
    calls(client, "MULTI")
    big = b"x" * (1 << 20)
    answers = [client.call(b"XADD", b"s", b"*", b"f", big) for _ in range(70)]
    assert any(isinstance(a, tuple) and a[0] == "-" for a in answers)
    assert calls(client, "EXEC")[0][1].startswith(b"EXECABORT")
    assert calls(client, "XLEN s") == [0]
    client.close()
