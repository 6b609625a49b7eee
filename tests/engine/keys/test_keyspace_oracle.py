"""Key, string, expiry and transaction commands against a real redis-server 7.0, on one clock.

Commands are mostly well-formed and sometimes damaged: a word too many, too few, or another one. Every reply must
agree to the byte, error texts included. What is known to differ is left out here and tested elsewhere: the order of
KEYS and SCAN, which key RANDOMKEY picks, idle times, the number MEMORY USAGE gives, and the reference count of small
integers, which Redis shares between keys.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.oracle.engine_side import Tidelog, digest_of, replayed
from tests.oracle.server import Clock, RedisServer, directory
from tests.oracle.wire import NULL_ARRAY, Connection
from tests.rounds import more

START_MS = 1_700_000_000_000
EXAMPLES = 130
STEPS_MAX = 40


class Two(NamedTuple):
    """A server with a session and an onlooker's connection, and its clock."""

    session: Connection
    onlooker: Connection
    clock: Clock


@pytest.fixture(scope="module")
def redis() -> Iterator[Two]:
    place = directory()
    clock = Clock(place)
    clock.set(START_MS)
    server = RedisServer(place, clock)
    session, onlooker = server.connect(), server.connect()
    try:
        # Keys go when somebody looks at them, or not at all: as tidelog's engine does on its own.
        onlooker.call(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")
        yield Two(session, onlooker, clock)
    finally:
        session.close()
        onlooker.close()
        server.close()
        shutil.rmtree(place)


keys = st.sampled_from([b"a", b"b", b"c", b"", b"a\0b"])
# fmt: off
values = st.sampled_from([
    b"", b"x", b"abc", b"0", b"1", b"-1", b"12", b"007", b"-0", b"+1", b" 1", b"1 ", b"1_0", b"1.5",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
    b"18446744073709551616", b"y" * 44, b"z" * 45, b"\xff\x00\r\n",
])
numbers = st.sampled_from([
    b"0", b"1", b"-1", b"2", b"10", b"100", b"1500", b"499", b"500", b"-5", b"9223372036854775807",
    b"-9223372036854775808", b"9223372036854775", b"9223372036854776", b"-9223372036854775",
    b"-9223372036854776", b"9221672036854775807", b"x", b"", b"01",
])
moments = st.one_of(
    numbers,
    st.integers(-5, 20).map(lambda s: b"%d" % (START_MS // 1000 + s)),
    st.integers(-5000, 20000).map(lambda ms: b"%d" % (START_MS + ms)),
)
databases = st.sampled_from([b"0", b"0", b"1", b"1", b"15", b"16", b"-1", b"x", b"2147483648", b""])
set_words = st.lists(st.one_of(
    st.sampled_from([[b"NX"], [b"XX"], [b"GET"], [b"KEEPTTL"], [b"PERSIST"], [b"EX"]]),
    st.tuples(st.sampled_from([b"EX", b"PX", b"EXAT", b"PXAT"]), moments).map(list),
), max_size=3).map(lambda groups: [word for group in groups for word in group])
conditions = st.lists(st.sampled_from([b"NX", b"XX", b"GT", b"LT", b"nope\r\n"]), max_size=2)
copy_words = st.lists(st.one_of(
    st.just([b"REPLACE"]), databases.map(lambda db: [b"DB", db]), st.just([b"DB"]),
), max_size=2).map(lambda groups: [word for group in groups for word in group])


def line(name: str, *parts: st.SearchStrategy[object]) -> st.SearchStrategy[list[bytes]]:
    """A command whose parts are single arguments or lists of them."""
    def flat(chosen: tuple[object, ...]) -> list[bytes]:
        args = [word.encode() for word in name.split()]
        for part in chosen:
            if isinstance(part, bytes):
                args.append(part)
            elif isinstance(part, list):
                args.extend(part)
        return args
    return st.tuples(*parts).map(flat)


some_keys = st.lists(keys, min_size=1, max_size=3)
plain = st.one_of(
    line("SET", keys, values), line("SET", keys, values), line("SET", keys, values, set_words),
    line("XADD", keys, st.just([b"*", b"f", b"v"])), line("XADD", keys, st.just([b"1", b"f"])),
    line("SETNX", keys, values), line("SETEX", keys, numbers, values),
    line("PSETEX", keys, numbers, values), line("GET", keys), line("GETDEL", keys),
    line("GETSET", keys, values), line("GETEX", keys, set_words), line("MGET", some_keys),
    line("MSET", st.lists(st.one_of(keys, values), min_size=2, max_size=5)),
    line("MSETNX", st.lists(keys, min_size=2, max_size=5)),
    line("INCR", keys), line("DECR", keys), line("INCRBY", keys, values), line("DECRBY", keys, values),
    line("APPEND", keys, values), line("STRLEN", keys),
    line("DEL", some_keys), line("UNLINK", some_keys), line("EXISTS", some_keys),
    line("TOUCH", some_keys), line("TYPE", keys), line("RENAME", keys, keys),
    line("RENAMENX", keys, keys), line("COPY", keys, keys, copy_words), line("MOVE", keys, databases),
    line("SWAPDB", databases, databases), line("FLUSHDB"), line("FLUSHDB", st.just([b"aSYNC"])),
    line("FLUSHALL", st.sampled_from([[b"SYNC"], [b"ASYNC", b"x"], [b"later"]])),
    line("EXPIRE", keys, moments, conditions), line("PEXPIRE", keys, moments, conditions),
    line("EXPIREAT", keys, moments, conditions), line("PEXPIREAT", keys, moments, conditions),
    line("PEXPIRE", keys, st.integers(1, 3000).map(lambda ms: b"%d" % ms), conditions),
    line("TTL", keys), line("PTTL", keys), line("EXPIRETIME", keys), line("PEXPIRETIME", keys),
    line("PERSIST", keys), line("OBJECT ENCODING", keys), 
    line("OBJECT FREQ", keys), line("OBJECT HELP"), line("PING"), line("ECHO", values),
)
noise = st.one_of(
    st.sampled_from([
        [b"NOPE"], [b"nope", b"a", b"b\0c", b"d\r\ne"], [b"NO\r\nPE", b"x" * 200, b"y"], [b"n\0x"],
        [b"q" * 130, b"x" * 100, b"y" * 100, b"z"], [b"OBJECT"], [b"object", b"Nope\r\n"], [b""],
        [b"OBJECT", b"nope", b"a", b"b"], [b"MEMORY"], [b"memory", b"x" * 140], [b"OBJECT", b""],
        [b"oBjEcT", b"eNcOdInG"], [b"PING", b"a", b"b"], [b"ping", b"x"], [b"x" * 64, b"y" * 127, b"z"],
        [b"SCAN", b"x"], [b"SCAN", b"-"], [b"SCAN", b"1 "], [b"SCAN", b"18446744073709551616"],
        [b"SCAN", b"0", b"COUNT", b"0"], [b"SCAN", b"0", b"COUNT", b"x"], [b"SCAN", b"0", b"COUNT"],
        [b"SCAN", b"0", b"NOPE", b"1"], [b"SCAN", b"1x"], [b"SCAN", b"0", b"MATCH", b"zzz", b"TYPE"],
        [b"MEMORY", b"USAGE", b"nokey"], [b"MEMORY", b"USAGE", b"a", b"SAMPLES"],
        [b"MEMORY", b"USAGE", b"a", b"SAMPLES", b"x"], [b"MEMORY", b"USAGE", b"a", b"SAMPLES", b"-1"],
        [b"MEMORY", b"USAGE", b"a", b"NOPE", b"1"], [b"OBJECT", b"IDLETIME", b"nokey"],
    ]),
)
session_words = st.one_of(
    line("MULTI"), line("EXEC"), line("DISCARD"), line("WATCH", some_keys), line("UNWATCH"),
    line("SELECT", databases), line("EXEC", st.just([b"x"])), line("WATCH"),
)
# fmt: on


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    args = list(draw(plain))
    at = draw(st.integers(0, len(args)))
    match draw(st.sampled_from(["drop", "insert", "replace", "case"])):
        case "drop":
            del args[at:]
        case "insert":
            args.insert(at, draw(st.one_of(keys, numbers, st.sampled_from([b"NX", b"GET", b"DB"]))))
        case "replace" if 0 < at < len(args):
            args[at] = draw(st.one_of(values, numbers))
        case _:
            args = [word.swapcase() for word in args]
    return args or [b"GET"]


class Step(NamedTuple):
    onlooker: bool
    later_ms: int
    args: list[bytes]


steps = st.builds(
    Step,
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 7, 600, 1500]),
    st.one_of(plain, plain, plain, damaged(), noise, session_words, session_words),
)
NOT_AN_ONLOOKERS = frozenset((b"multi", b"exec", b"discard", b"watch", b"unwatch", b"select"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(steps, min_size=5, max_size=STEPS_MAX))
def test_replies_are_those_of_redis(redis: Two, script: list[Step]) -> None:
    now = START_MS
    redis.clock.set(now)
    redis.session.pipeline([[b"DISCARD"], [b"UNWATCH"], [b"SELECT", b"0"], [b"FLUSHALL"]])
    tidelog = Tidelog()
    for step in script:
        now += step.later_ms
        redis.clock.set(now)
        if step.onlooker and step.args[0].lower() not in NOT_AN_ONLOOKERS:
            theirs = redis.onlooker.call(*step.args)
            ours = tidelog.look(now, 0, step.args).expect
        else:
            theirs = redis.session.call(*step.args)
            ours = tidelog.run(now, step.args).expect
        assert ours == theirs, step.args
    redis.session.call(b"DISCARD")
    tidelog.run(now, [b"DISCARD"])
    for db in range(3):
        redis.onlooker.call(b"SELECT", b"%d" % db)
        theirs = redis.onlooker.call(b"KEYS", b"*")
        assert sorted(tidelog.look(now, db, [b"KEYS", b"*"]).form) == sorted(theirs)
        for key in theirs:
            for look in (b"TYPE", b"PEXPIRETIME"):
                theirs_of_key = redis.onlooker.call(look, key)
                assert tidelog.look(now, db, [look, key]).form == theirs_of_key
    redis.onlooker.call(b"SELECT", b"0")
    assert digest_of(replayed(tidelog.history)) == digest_of(tidelog.state)


test_more_replies_are_those_of_redis = more(test_replies_are_those_of_redis, 400)


glob_bytes = st.lists(st.sampled_from(list(b"ab*?[]^-\\c\x00\xff\x80")), max_size=9).map(bytes)
names = st.lists(st.sampled_from(list(b"abc]-\\^\x00\xff\x80")), max_size=6).map(bytes)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(names, max_size=30, unique=True), st.lists(glob_bytes, min_size=1, max_size=20))
def test_patterns_match_what_redis_matches(
    redis: Two, found: list[bytes], patterns: list[bytes]
) -> None:
    redis.clock.set(START_MS)
    redis.session.pipeline([[b"DISCARD"], [b"SELECT", b"0"], [b"FLUSHALL"]])
    tidelog = Tidelog()
    for name in found:
        redis.session.call(b"SET", name, b"1")
        tidelog.run(START_MS, [b"SET", name, b"1"])
    for pattern in patterns:
        theirs = redis.session.call(b"KEYS", pattern)
        assert sorted(tidelog.run(START_MS, [b"KEYS", pattern]).form) == sorted(theirs), pattern
        scanned = tidelog.run(START_MS, [b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"100"]).form
        wanted = redis.session.call(b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"1000")
        assert sorted(scanned[1]) == sorted(wanted[1]), pattern


test_more_patterns_match_what_redis_matches = more(test_patterns_match_what_redis_matches, 300)


def test_exec_of_a_broken_watch_is_the_null_array() -> None:
    tidelog = Tidelog()
    tidelog.run(1, [b"WATCH", b"k"])
    tidelog.look(1, 0, [b"SET", b"k", b"1"])
    tidelog.run(1, [b"MULTI"])
    assert tidelog.run(1, [b"EXEC"]).form == NULL_ARRAY


def test_scan_of_an_unknown_type_finds_nothing() -> None:
    tidelog = Tidelog()
    tidelog.run(1, [b"SET", b"x", b"v"])
    assert tidelog.run(1, [b"SCAN", b"0", b"TYPE", b"Nope"]).form == [b"0", []]
