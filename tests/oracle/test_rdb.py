"""RDB to and from a redis-server: DUMP, RESTORE, SAVE and loading a file, each equal to the millisecond.

A redis-server 7.0 writes and reads streams of type 19, an 8.2 those of type 21, which have active-times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.rdb.loaded import check, put, put_dump, read, written
from tests.oracle.conftest import Oracle
from tests.oracle.driver import VIEWED_DATABASES, Pair
from tests.oracle.engine_side import Tidelog, digest_of
from tests.oracle.played import played
from tests.oracle.server import EIGHT, SEVEN, Release
from tests.oracle.test_rewrite import SCRIPT
from tests.oracle.wire import OK, Connection, Form

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.rdb.file import RdbFile, dumped
from tidelog.engine.rdb.skip import skip_value, type_name
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import KINDS
from tidelog.engine.rdb.write import RdbTarget, dump
from tidelog.engine.streams.stream import Stream

TARGETS = {SEVEN: RdbTarget.REDIS_7_0, EIGHT: RdbTarget.REDIS_7_2}
both_releases = pytest.mark.parametrize(
    "oracle_of", [SEVEN, EIGHT], ids=["7.0", "8.2"], indirect=True
)


@pytest.fixture
def oracle_of(request: pytest.FixtureRequest) -> Oracle:
    """The servers of the release that is the parameter; 7.0 without one."""
    release: Release = getattr(request, "param", SEVEN)
    name = "oracle" if release is SEVEN else "oracle_8_2"
    found: Oracle = request.getfixturevalue(name)
    return found


@pytest.fixture
def pair(oracle_of: Oracle) -> Iterator[Pair]:
    pair = Pair(oracle_of)
    yield pair
    pair.close()


def rdb_path(oracle: Oracle) -> Path:
    return oracle.server.socket.with_name("dump.rdb")


def begin(pair: Pair, oracle: Oracle, state: State, now: int) -> None:
    """Let the tidelog side of the pair hold this state."""
    pair.tidelog = Tidelog(owes=oracle.owes)
    pair.tidelog.state = state
    pair.tidelog.ctx = Context(state, Settings())
    pair.now = now
    pair.clock.set(now)
    pair.tidelog.expire_due(now)


def as_redis_has_it(seed: int, target: RdbTarget) -> tuple[State, int]:
    """A random state that the target can hold."""
    source, now = played(random.Random(seed), 60)
    state = read(Source.of(written(source.state, target)[0]))
    return state, now


def agree(pair: Pair) -> None:
    """All views are the same on both sides, XPENDING too, and seen-times, which the view of 7.0 leaves open."""
    pair.compare_views()
    for db in VIEWED_DATABASES:
        pair.onlooker.call(b"SELECT", b"%d" % db)
        for key, value in pair.tidelog.state.databases[db].keys.items():
            if isinstance(value, Stream):
                shown = pairs(pair.onlooker.call(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"))
                for told in map(pairs, shown[b"groups"]):
                    group = value.groups[told[b"name"]]
                    for page in ([], [b"-", b"+", b"1000000"]):
                        asked = [b"XPENDING", key, group.name, *page]
                        outcome = pair.tidelog.look(pair.now, db, asked)
                        assert outcome.form == pair.onlooker.call(*asked)
                    assert [
                        (each[b"name"], each[b"seen-time"])
                        for each in map(pairs, told[b"consumers"])
                    ] == [(each.name, each.seen_time) for each in group.listed()]


def pairs(form: Form) -> dict[bytes, Form]:
    return dict(zip(form[::2], form[1::2], strict=True))


def restore_all(link: Connection, state: State, target: RdbTarget) -> None:
    for db, database in enumerate(state.databases):
        link.call(b"SELECT", b"%d" % db)
        for key, value in database.keys.items():
            at = b"%d" % database.expires.get(key, 0)
            lost = Lost()
            payload = dump(key, value, target, lost, db)
            assert link.call(b"RESTORE", key, at, payload, b"ABSTTL") == OK


def dumped_by(link: Connection, like: State) -> State:
    """The state that the server's DUMPs of these keys give."""
    state = State()
    for db, database in enumerate(like.databases):
        link.call(b"SELECT", b"%d" % db)
        for key in database.keys:
            payload = link.call(b"DUMP", key)
            kind, source = dumped(payload)
            put(state, db, key, kind, source, link.call(b"PEXPIRETIME", key))
    return state


def both_ways(pair: Pair, oracle: Oracle, seed: int) -> None:
    target = TARGETS[oracle.release]
    state, now = as_redis_has_it(seed, target)
    begin(pair, oracle, state, now)
    pair.onlooker.call(b"FLUSHALL")
    restore_all(pair.onlooker, state, target)
    agree(pair)
    assert digest_of(dumped_by(pair.onlooker, state)) == digest_of(state), seed
    assert pair.onlooker.call(b"SAVE") == OK
    saved = read(Source.of(rdb_path(oracle).read_bytes()))
    check(saved)
    assert digest_of(saved) == digest_of(state), seed


@both_releases
def test_restored_and_dumped(pair: Pair, oracle_of: Oracle) -> None:
    for seed in range(12):
        both_ways(pair, oracle_of, seed)


@pytest.mark.slow
@both_releases
def test_many_restored_and_dumped(pair: Pair, oracle_of: Oracle) -> None:
    for seed in range(2000, 2500):
        both_ways(pair, oracle_of, seed)


def loaded(pair: Pair, oracle: Oracle, seed: int) -> None:
    target = TARGETS[oracle.release]
    state, now = as_redis_has_it(seed, target)
    begin(pair, oracle, state, now)
    rdb_path(oracle).write_bytes(written(state, target)[0])
    assert pair.onlooker.call(b"DEBUG", b"RELOAD", b"NOSAVE") == OK
    agree(pair)


@both_releases
def test_a_file_of_ours_is_loaded(pair: Pair, oracle_of: Oracle) -> None:
    for seed in range(20, 26):
        loaded(pair, oracle_of, seed)


@pytest.mark.slow
@both_releases
def test_many_files_of_ours_are_loaded(pair: Pair, oracle_of: Oracle) -> None:
    for seed in range(3000, 3500):
        loaded(pair, oracle_of, seed)


@both_releases
def test_a_stream_that_redis_made(pair: Pair, oracle_of: Oracle) -> None:
    """Larger than one node, with all that commands of 7.0 can make of it, compressed."""
    target = TARGETS[oracle_of.release]
    link = pair.onlooker
    pair.clock.set(pair.now)
    for line in SCRIPT.strip().split("\n"):
        link.call(*line.encode().split())
    link.call(b"SELECT", b"0")
    link.call(b"CONFIG", b"SET", b"rdbcompression", b"yes")
    r = random.Random(4)
    ids = []
    for number in range(700):
        fields = [b"name", b"a name that repeats itself", b"number", b"%d" % r.randrange(1 << 40)]
        if number % 50 == 0:
            fields += [b"more", b"v" * r.randrange(5000)]
        ids.append(link.call(b"XADD", b"big", b"%d-%d" % (1000 + number // 3, number), *fields))
    link.call(b"XGROUP", b"CREATE", b"big", b"g", b"0")
    for _ in range(9):
        name = r.choice((b"ann", b"bob"))
        link.call(
            b"XREADGROUP", b"GROUP", b"g", name, b"COUNT", b"70", b"STREAMS", b"big", b">"
        )  # fmt: skip
    link.call(b"XACK", b"big", b"g", *r.sample(ids, 200))
    link.call(b"XDEL", b"big", *r.sample(ids, 100))
    link.call(b"XTRIM", b"big", b"MAXLEN", b"500")
    assert link.call(b"SAVE") == OK
    data = rdb_path(oracle_of).read_bytes()
    assert b"a name that repeats itself" not in data.replace(b"a name that repeats itself", b"", 40)
    state = read(Source.of(data))
    check(state)
    pair.tidelog.state = state
    pair.tidelog.ctx = Context(state, Settings())
    agree(pair)
    link.call(b"SELECT", b"0")
    again = State()
    put_dump(again, 0, b"big", link.call(b"DUMP", b"big"))
    (one,) = {digest_of(only(state, b"big", target)), digest_of(only(again, b"big", target))}
    assert one


def only(state: State, key: bytes, target: RdbTarget) -> State:
    """A state with this key of database 0 alone."""
    alone = State()
    put_dump(alone, 0, key, dump(key, state.databases[0].keys[key], target, Lost()))
    return alone


@both_releases
def test_values_of_other_types_are_stepped_over(pair: Pair, oracle_of: Oracle) -> None:
    link = pair.onlooker
    link.call(b"CONFIG", b"SET", b"rdbcompression", b"yes")
    words = [b"w%d" % n for n in range(300)]
    numbers = [b"%d" % n for n in range(100)]
    made = {
        b"list": [b"RPUSH", b"list", *words, b"x" * 9000],
        b"set": [b"SADD", b"set", *words],
        b"few": [b"SADD", b"few", b"a", b"b"],
        b"ints": [b"SADD", b"ints", *numbers],
        b"hash": [b"HSET", b"hash", *words],
        b"long": [b"HSET", b"long", b"f", b"v" * 5000],
        b"zset": [b"ZADD", b"zset", *sum(map(list, zip(numbers * 3, words)), [])],
        b"edge": [b"ZADD", b"edge", b"-inf", b"low", b"inf", b"h" * 200, b"1.5", b"mid"],
        b"hll": [b"PFADD", b"hll", *words],
        b"raw": [b"SET", b"raw", b"z" * 100],
        b"number": [b"SET", b"number", b"-123456"],
    }
    for command in made.values():
        link.call(*command)
    link.call(b"FUNCTION", b"LOAD", b"#!lua name=l\nredis.register_function('f', function() end)")
    assert link.call(b"SAVE") == OK
    data = rdb_path(oracle_of).read_bytes()
    link.call(b"FUNCTION", b"FLUSH")
    file = RdbFile(Source.of(data))
    found = {}
    for key in file.keys():
        assert key.kind not in KINDS
        found[key.name] = type_name(key.kind)
        skip_value(file.source, key.kind)
    assert found == {name: link.call(b"TYPE", name)[1].decode() for name in made}
    assert file.skipped == {"functions": 1}
    state = read(Source.of(data))
    assert set(state.databases[0].keys) == {b"hll", b"raw", b"number"}
    assert state.databases[0].keys[b"raw"] == b"z" * 100
    assert state.databases[0].keys[b"number"] == b"-123456"
