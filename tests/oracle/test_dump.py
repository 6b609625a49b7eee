"""DUMP and RESTORE beside a redis-server 7.0 and an 8.2: payloads go both ways, and errors are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.engine.test_dump import ERRORS
from tests.oracle.conftest import Oracle
from tests.oracle.driver import Pair
from tests.oracle.server import EIGHT
from tests.oracle.test_rdb import TARGETS, agree, as_redis_has_it, begin, both_releases, oracle_of
from tests.oracle.wire import OK, Form

from tidelog.engine.keys.state import State
from tidelog.engine.rdb.file import payload_of

__all__ = ["oracle_of"]


@pytest.fixture
def pair(oracle_of: Oracle) -> Iterator[Pair]:
    pair = Pair(oracle_of)
    yield pair
    pair.close()


def ours(pair: Pair, db: int, *args: bytes) -> Form:
    """The reply of tidelog, whose state it changes."""
    pair.tidelog.run(pair.now, [b"SELECT", b"%d" % db])
    return pair.tidelog.run(pair.now, list(args)).form


def exchanged(pair: Pair, oracle: Oracle, seed: int) -> None:
    """Tidelog's payloads are loaded by the server; those of the server by a tidelog that holds nothing."""
    state, now = as_redis_has_it(seed, TARGETS[oracle.release])
    # A key lives through its last millisecond, in which RESTORE takes its time for one that has passed.
    now += any(now in database.expires.values() for database in state.databases)
    begin(pair, oracle, state, now)
    link = pair.onlooker
    link.call(b"FLUSHALL")
    keys = [
        (db, key, b"%d" % database.expires.get(key, 0))
        for db, database in enumerate(state.databases)
        for key in list(database.keys)
    ]
    for db, key, at in keys:
        link.call(b"SELECT", b"%d" % db)
        payload = ours(pair, db, b"DUMP", key)
        assert link.call(b"RESTORE", key, at, payload, b"ABSTTL") == OK, (seed, key)
    agree(pair)
    begin(pair, oracle, State(), now)
    for db, key, at in keys:
        link.call(b"SELECT", b"%d" % db)
        payload = link.call(b"DUMP", key)
        assert ours(pair, db, b"RESTORE", key, at, payload, b"ABSTTL") == OK, (seed, key)
    agree(pair)


@both_releases
def test_payloads_go_both_ways(pair: Pair, oracle_of: Oracle) -> None:
    for seed in (*range(40, 48), 5389):
        exchanged(pair, oracle_of, seed)


@pytest.mark.slow
@both_releases
def test_many_payloads_go_both_ways(pair: Pair, oracle_of: Oracle) -> None:
    for seed in range(5000, 5400):
        exchanged(pair, oracle_of, seed)


@both_releases
def test_the_errors_are_those_of_the_server(pair: Pair, oracle_of: Oracle) -> None:
    """But for a value of another type, which the server takes."""
    pair.onlooker.call(b"FLUSHALL")
    pair.clock.set(pair.now)
    for side in (lambda *args: ours(pair, 0, *args), pair.onlooker.call):
        side(b"XADD", b"s", b"1-1", b"f", b"v")
    for words, line in ERRORS:
        args = [b"RESTORE"]
        args += [word if isinstance(word, bytes) else word.encode() for word in words]
        assert ours(pair, 0, *args) == ("-", line[1:].encode())
        if b"tidelog" not in line.encode():
            assert pair.onlooker.call(*args) == ("-", line[1:].encode()), args


@both_releases
def test_times_and_options_are_those_of_the_server(pair: Pair, oracle_of: Oracle) -> None:
    r = random.Random(7)
    link = pair.onlooker
    link.call(b"FLUSHALL")
    version = TARGETS[oracle_of.release].version
    payload = payload_of(0, b"\x01x", version)
    newer = payload_of(0, b"\x01x", 13 if oracle_of.release is EIGHT else 11)
    assert link.call(b"RESTORE", b"n", b"0", newer) != OK  # tidelog takes what a later Redis dumps
    assert ours(pair, 0, b"RESTORE", b"n", b"0", newer, b"REPLACE") == OK
    assert ours(pair, 0, b"DEL", b"n") == 1
    for _ in range(300):
        pair.now += r.choice((0, 1, 400))
        pair.clock.set(pair.now)
        ttl = r.choice((0, 1, 500, -1, pair.now, pair.now + 1, pair.now + 500, 2**63 - 1))
        words = [b"REPLACE", b"absttl", b"IDLETIME", b"FREQ", b"0", b"5", b"255", b"x"]
        options = r.sample(words, r.randrange(4)) if r.random() < 0.5 else [b"REPLACE"]
        for args in (
            [b"RESTORE", b"n", b"%d" % ttl, payload, *options],
            [b"PTTL", b"n"],
            [b"GET", b"n"],
            [b"OBJECT", b"IDLETIME", b"n"],
        ):
            mine, theirs = ours(pair, 0, *args), link.call(*args)
            if args[0] == b"OBJECT":
                # Redis counts idle times by a timer, which does not follow leaps of the clock.
                assert type(mine) is type(theirs), args
            else:
                assert mine == theirs, args
    for seconds in (0, 7, 1000):
        idle = [b"IDLETIME", b"%d" % seconds]
        assert ours(pair, 0, b"RESTORE", b"n", b"0", payload, b"REPLACE", *idle) == OK
        assert ours(pair, 0, b"OBJECT", b"IDLETIME", b"n") == seconds
