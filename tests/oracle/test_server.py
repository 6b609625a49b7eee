"""The oracle itself: a 7.0 server, on our clock, whose replies lose nothing on the way."""

from __future__ import annotations

import pytest
from tests.oracle import server
from tests.oracle.conftest import Oracle
from tests.oracle.wire import NULL_ARRAY, OK, Unfinished, decode, error


def test_the_clock_is_ours(oracle: Oracle) -> None:
    link = oracle.server.connect()
    oracle.clock.set(1_700_000_000_123)
    assert link.call(b"TIME") == [b"1700000000", b"123000"]
    assert link.call(b"XADD", b"clock", b"*", b"f", b"v") == b"1700000000123-0"
    assert link.call(b"SET", b"token", b"v", b"PX", b"1000") == OK
    oracle.clock.set(1_700_000_001_122)
    assert link.call(b"PTTL", b"token") == 1
    oracle.clock.set(1_700_000_001_124)
    assert link.call(b"GET", b"token") is None
    assert link.call(b"FLUSHALL") == OK
    link.close()


def test_nulls_and_statuses_stay_apart(oracle: Oracle) -> None:
    link = oracle.server.connect()
    replies = link.pipeline(
        [
            (b"FLUSHALL",),
            (b"GET", b"none"),
            (b"XREAD", b"STREAMS", b"none", b"0"),
            (b"PING",),
            (b"ECHO", b"PONG"),
            (b"XLEN",),
            (b"EXISTS", b"none"),
            (b"KEYS", b"*"),
        ]
    )
    arity = error(b"ERR wrong number of arguments for 'xlen' command")
    assert replies == [OK, None, NULL_ARRAY, ("+", b"PONG"), b"PONG", arity, 0, []]
    link.close()


def test_a_reply_cut_anywhere_is_unfinished() -> None:
    whole = b"*3\r\n$3\r\na\r\n\r\n:5\r\n*1\r\n$-1\r\n"
    assert decode(whole, 0) == ([b"a\r\n", 5, [None]], len(whole))
    for cut in range(len(whole)):
        with pytest.raises(Unfinished):
            decode(whole[:cut], 0)


def test_a_missing_program_names_its_package() -> None:
    with pytest.raises(server.OracleMissing, match="apt-get install redis-server"):
        server.tool("redis-server-that-is-not-there", "redis-server")
