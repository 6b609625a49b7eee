"""Keys that lie in a checkpoint and not in memory: nobody can tell.

Random commands on two engines: a plain one, and one whose state is frozen, written to rows, evicted and
reloaded at random points. Every reply and every digest must agree.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.driver import plain
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide, expire_due
from tidelog.engine.commands.transaction import Transaction, Watches
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import OPCODE, VOLATILE, Effect
from tidelog.engine.effects.observe import touches
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.keys import freeze as freezing
from tidelog.engine.keys.expiries import NEVER
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import NULL_ARRAY, OK
from tidelog.engine.rowkeys import EXPIRY, KEY, STREAM, key_hash, key_row, stream_row
from tidelog.engine.streams.stream import Stream

START = 1_000_000


class Side:
    """An engine with one session and its WATCHes."""

    def __init__(self) -> None:
        self.state = State()
        self.settings = Settings()
        self.ctx = Context(self.state, self.settings)
        self.watches = Watches()
        self.transaction = Transaction(self.watches)

    def run(self, db: int, now: int, args: list[bytes]) -> Any:
        """A command's reply as plain Python; errors as `-ERROR`."""
        ctx = self.ctx
        ctx.db, ctx.now = db, now
        ctx.effects = []
        while now >= self.state.next_expiry:
            expire_due(ctx, 3)
            if not ctx.effects:
                break
            self.apply(ctx.effects)
            ctx.effects = []
        if args[0] in (b"WATCH", b"EXEC"):
            if args[0] == b"WATCH":
                return self.transaction.submit(ctx, args)
            self.transaction.submit(ctx, [b"MULTI"])
            return self.transaction.submit(ctx, args) is NULL_ARRAY
        try:
            reply = decide(ctx, args)
        except CommandError as refused:
            return f"-{refused}"
        shown = plain(reply)
        self.apply(ctx.effects)
        return shown

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.watches.keys:
                self.observe(effect)
            apply(self.state, effect)

    def observe(self, effect: Effect) -> None:
        self.watches.touch(touches(effect, self.state, self.watches.keys))


class ColdSide(Side):
    """As `Side`, over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = RowsInMemory()
        self.meta: dict[str, Any] | None = None
        self.since: list[Effect] = []  # logged since the last committed freeze
        self.in_flight: Any = None  # frozen, meta, rows being written, place in `since`, digest

    def apply(self, effects: list[Effect]) -> None:
        self.rows.closed = True  # decide has read what apply needs
        super().apply(effects)
        self.rows.closed = False
        self.since += [effect for effect in effects if effect[0] & OPCODE < VOLATILE]

    def observe(self, effect: Effect) -> None:
        self.rows.closed = False  # a flush concerns the watched keys that exist, also cold ones
        super().observe(effect)
        self.rows.closed = True

    def freeze(self) -> None:
        if self.in_flight is None:
            meta = self.state.tables_meta()
            frozen = freezing.freeze(self.state)
            self.in_flight = frozen, meta, self.rows.copy(), len(self.since), digest(self.state)

    def take(self, limit: int) -> int:
        """Copy and write some of the frozen rows. How many are left."""
        if self.in_flight is None:
            return 0
        frozen, _, writing, *_ = self.in_flight
        left: int = frozen.take_some(limit)
        writing.write(frozen.rows(writing))
        return left

    def commit(self) -> None:
        if self.in_flight is None:
            return
        while self.take(3):
            pass
        frozen, self.meta, writing, at, frozen_digest = self.in_flight
        del self.since[:at]
        self.rows._keys, self.rows._payloads = writing._keys, writing._payloads
        self.state.cold = self.rows
        freezing.settle(self.state, frozen)
        self.in_flight = None
        # The rows hold the state at the freeze, whatever has changed since.
        assert digest(freezing.load_state(self.rows, self.meta)) == frozen_digest

    def fail(self) -> None:
        if self.in_flight is not None:
            freezing.thaw(self.state, self.in_flight[0])
            self.in_flight = None

    def evict(self, part: int) -> None:
        """Evict about one key in `part` of those that can go."""
        for database in self.state.databases:
            for at, key in enumerate(list(dict.keys(database.keys))):
                if (at + part) % part == 0:
                    database.keys.evict(key)

    def reload(self) -> None:
        """As after a restart: the last checkpoint, and the log since. Not with a session that watches."""
        if self.meta is None or self.in_flight is not None or self.watches.keys:
            return
        self.state = freezing.load_state(self.rows, self.meta)
        self.ctx = Context(self.state, self.settings)
        for effect in self.since:
            apply(self.state, effect)


def check_rows(side: ColdSide) -> None:
    """The rows that were just committed are the state: no row too many, none missing."""
    rows = side.rows.all()
    expected_keys, expected_expiries, numbers = set(), set(), set()
    for database in side.state.databases:
        for key, value, at in database.keys.walk():
            expected_keys.add(key_row(database.table, key))
            if at != NO_EXPIRY:
                expected_expiries.add((database.table, at, key_hash(key)))
            if isinstance(value, Stream):
                numbers.add(stream_row(value.number))
    assert {row for row in rows if row[:1] == KEY} == expected_keys
    assert {
        (int.from_bytes(row[1:5], "big"), int.from_bytes(row[5:13], "big"), row[13:])
        for row in rows
        if row[:1] == EXPIRY
    } == expected_expiries
    assert {row for row in rows if row[:1] == STREAM} == numbers


names = st.sampled_from([b"a", b"b", b"a", b"b", b"c", b"d", b"", b"x" * 600])
some = st.lists(names, min_size=1, max_size=3)
dbs = st.sampled_from([0, 0, 0, 1, 2])
number = st.sampled_from([b"0", b"1", b"2"])
moments = st.integers(0, 40).map(lambda ms: b"%d" % (START + ms))
ids = st.integers(1, 60).map(lambda ms: b"%d-1" % ms)


def words(text: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[bytes]]:
    """A command: words, then arguments or lists of them."""

    def flat(chosen: tuple[Any, ...]) -> list[bytes]:
        args = text.encode().split()
        for part in chosen:
            args += part if isinstance(part, list) else [part]
        return args

    return st.tuples(*parts).map(flat)


values = st.sampled_from([b"1", b"v", b"w" * 50])
fields = st.just([b"f", b"v"])
commands = st.one_of(
    words("SET", names, values),
    words("SET", names, values, st.just(b"PXAT"), moments),
    words("SET", names, values, st.sampled_from([b"NX", b"XX", b"GET", b"KEEPTTL"])),
    words("APPEND", names, values),
    words("INCR", names),
    words("GET", names),
    words("GETDEL", names),
    words("GETEX", names, st.just(b"PERSIST")),
    words("MSET", names, values, names, values),
    words("MSETNX", names, values, names, values),
    words("DEL", some),
    words("EXISTS", some),
    words("TYPE", names),
    words("OBJECT ENCODING", names),
    words("RENAME", names, names),
    words("RENAMENX", names, names),
    words("COPY", names, names),
    words("COPY", names, names, st.just([b"REPLACE", b"DB"]), number),
    words("MOVE", names, number),
    words("SWAPDB", number, number),
    words("FLUSHDB"),
    words("FLUSHALL"),
    words("PEXPIREAT", names, moments),
    words("PERSIST", names),
    words("PEXPIRETIME", names),
    words("PTTL", names),
    words("DBSIZE"),
    words("KEYS", st.sampled_from([b"*", b"[a-c]", b"?*"])),
    words("RANDOMKEY"),
    words("SCAN 0 COUNT 100"),
    words("SCAN 0 COUNT 2"),
    words("SCAN 0 COUNT 100 TYPE", st.sampled_from([b"string", b"stream"])),
    words("XADD", names, st.just(b"*"), fields),
    words("XADD", names, st.just(b"*"), fields),
    words("XADD", names, st.just([b"MAXLEN", b"2", b"*"]), fields),
    words("XADD", names, st.just([b"NOMKSTREAM", b"*"]), fields),
    words("XLEN", names),
    words("XRANGE", names, st.just([b"-", b"+"])),
    words("XTRIM", names, st.just([b"MAXLEN", b"1"])),
    words("XGROUP CREATE", names, st.just([b"g", b"0", b"MKSTREAM"])),
    words("XGROUP DESTROY", names, st.just(b"g")),
    words("XREADGROUP GROUP g c COUNT 2 STREAMS", names, st.just(b">")),
    words("XPENDING", names, st.just(b"g")),
    words("XINFO GROUPS", names),
    words("WATCH", some),
    words("EXEC"),
)
few = st.sampled_from([b"a", b"b"])
changes = st.one_of(  # what checkpoints depend on most
    words("SET", few, values, st.just(b"PXAT"), moments),
    words("XADD", few, st.just(b"*"), fields),
    words("XADD", few, st.just(b"*"), fields),
    words("PEXPIREAT", few, moments),
    words("PERSIST", few),
    words("DEL", few),
    words("RENAME", few, few),
    words("MOVE", few, number),
    words("FLUSHDB"),
)
steps = st.one_of(
    st.tuples(st.just("run"), dbs, commands),
    st.tuples(st.just("run"), dbs, commands),
    st.tuples(st.just("run"), st.integers(0, 1), changes),
    st.tuples(st.just("run"), st.integers(0, 1), changes),
    st.tuples(st.just("later"), st.integers(1, 15), st.none()),
    st.tuples(st.just("freeze"), st.none(), st.none()),
    st.tuples(st.just("freeze"), st.none(), st.none()),
    st.tuples(st.just("take"), st.integers(1, 2), st.none()),
    st.tuples(st.just("commit"), st.none(), st.none()),
    st.tuples(st.just("commit"), st.none(), st.none()),
    st.tuples(st.just("fail"), st.none(), st.none()),
    st.tuples(st.just("evict"), st.integers(1, 3), st.none()),
    st.tuples(st.just("stored"), st.none(), st.none()),
    st.tuples(st.just("reload"), st.none(), st.none()),
    st.tuples(st.just("digest"), st.none(), st.none()),
)


def agree(one: Side, other: Side, db: int, now: int, args: list[bytes]) -> None:
    """Both sides answer a command alike, up to what is left open."""
    expected, found = one.run(db, now, args), other.run(db, now, args)
    if args[0] == b"KEYS":
        assert sorted(found) == sorted(expected)
    elif args[0] == b"RANDOMKEY":
        live = one.run(db, now, [b"KEYS", b"*"])
        assert (found in live) if live else found is None
    elif args[0] == b"SCAN":
        assert (found[0], sorted(found[1])) == (expected[0], sorted(expected[1]))
        cursor = found[0].encode()
        if cursor != b"0":
            agree(one, other, db, now, [b"SCAN", cursor, *args[2:]])
    else:
        assert found == expected


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=25, max_size=60))
def test_cold_keys_answer_as_resident_ones(chosen: list[tuple[Any, ...]]) -> None:
    play(chosen)


def play(chosen: list[tuple[Any, ...]]) -> None:
    one, other = Side(), ColdSide()
    now = START
    for what, first, args in chosen:
        match what:
            case "run":
                agree(one, other, first, now, args)
            case "later":
                now += first
            case "freeze":
                other.freeze()
            case "take":
                other.take(first)
            case "commit":
                other.commit()
            case "fail":
                other.fail()
            case "evict":
                other.evict(first)
            case "stored":
                other.fail()
                other.freeze()
                other.commit()
                other.evict(1)
                check_rows(other)
            case "reload":
                other.reload()
            case "digest":
                assert digest(other.state) == digest(one.state)
        for mine, others in zip(one.state.databases, other.state.databases, strict=True):
            assert (len(mine.keys), len(mine.expires)) == (len(others.keys), len(others.expires))
            assert mine.table == others.table
        assert other.state.next_expiry <= one.state.next_expiry
        assert other.state.next_stream_number == one.state.next_stream_number
    assert digest(other.state) == digest(one.state)
    other.fail()
    other.freeze()
    other.commit()
    check_rows(other)
    other.watches = Watches()
    other.reload()
    assert digest(other.state) == digest(one.state)


def filled(keys: int, expiring: int = 0) -> ColdSide:
    """A side with strings, all of them in its rows and none in memory; some expire at START + 1, + 2, ..."""
    side = ColdSide()
    for at in range(keys):
        expire_at = START + 1 + at if at < expiring else -1
        side.apply([(25, 0, b"key%d" % at, b"v%d" % at, expire_at)])
    side.freeze()
    side.commit()
    side.reload()
    return side


def resident(side: Side) -> int:
    return dict.__len__(side.state.databases[0].keys)


def test_looking_at_all_keys_loads_none() -> None:
    side = filled(500, 100)
    keys = side.state.databases[0].keys
    assert len(side.run(0, START, [b"KEYS", b"*"])) == side.run(0, START, [b"DBSIZE"]) == 500
    assert len(side.run(0, START, [b"SCAN", b"0", b"COUNT", b"600", b"TYPE", b"string"])[1]) == 500
    for at in range(20):
        assert side.run(0, START + at - 20, [b"RANDOMKEY"]).encode() in keys
    assert side.run(0, START, [b"WATCH", b"key1"]) == OK
    digest(side.state)
    assert len(list(keys.items())) == len(list(keys.values())) == 500
    assert resident(side) == 0
    assert side.run(0, START, [b"GET", b"key7"]) == "v7"
    assert resident(side) == 1


def test_random_keys_are_not_always_the_same() -> None:
    side = filled(50)
    picked = {side.run(0, START + at, [b"RANDOMKEY"]) for at in range(200)}
    assert len(picked) > 15


def test_a_page_of_a_scan_reads_little_beyond_itself() -> None:
    side = filled(2000)
    for at in range(2000):
        side.run(0, START, [b"GET", b"key%d" % at])
    side.state.databases[0].keys.evict(b"key1")
    side.rows.reads = 0
    side.run(0, START, [b"SCAN", b"0", b"COUNT", b"10"])
    assert side.rows.reads < 40


def test_what_is_due_is_read_in_its_order_and_no_more() -> None:
    side = filled(2000, 1000)
    expires = side.state.databases[0].expires
    assert len(expires) == 1000
    side.rows.reads = 0
    assert side.run(0, START + 5, [b"DBSIZE"]) == 1996
    assert side.rows.reads < 40
    assert side.state.next_expiry == START + 5
    assert len(expires) == 996
    assert side.run(0, START + 5000, [b"DBSIZE"]) == 1000
    assert len(expires) == 0 and side.state.next_expiry == NEVER


def test_a_time_that_was_taken_away_is_not_read_again() -> None:
    side = filled(3, 2)
    assert side.run(0, START, [b"PERSIST", b"key0"]) == 1
    assert side.run(0, START + 10, [b"DBSIZE"]) == 2
    assert side.run(0, START + 10, [b"PTTL", b"key0"]) == -1


def test_keys_of_one_moment_come_back_after_an_eviction() -> None:
    side = ColdSide()
    for at in range(6):
        side.apply([(25, 0, b"key%d" % at, b"v", START)])
    side.freeze()
    side.commit()
    side.reload()
    database = side.state.databases[0]
    for limit in (1, 2, 4):
        for key in database.expires.due(START + 1, limit):
            assert database.keys.get(key) == b"v"
            assert database.keys.evict(key)
    assert len(database.expires.due(START + 1, 10)) == 6


def test_a_bound_that_was_too_early_is_set_right() -> None:
    side = filled(3, 1)
    assert side.state.next_expiry == START + 1
    side.state.next_expiry = START - 10
    assert side.run(0, START, [b"DBSIZE"]) == 3
    assert side.state.next_expiry == START + 1


def test_replay_over_cold_keys_needs_no_decide_before() -> None:
    """Effects alone, as replay and a follower apply them."""
    log: list[Effect] = []
    side = ColdSide()
    for db, line in [
        (0, b"SET s 1 PXAT 1000050"),
        (0, b"APPEND raw x"),
        (0, b"APPEND raw y"),
        (0, b"SET t 2"),
        (0, b"SET u 2 PXAT 1000051"),
        (0, b"XADD x 1-1 a b"),
        (0, b"XADD y 1-1 a b"),
        (1, b"XADD z 1-1 a b"),
    ]:
        side.run(db, START, line.split())
    side.freeze()
    side.commit()
    one = State()
    for effect in side.since:
        apply(one, effect)
    recorder = ColdSide()
    recorder.rows, recorder.meta = side.rows, side.meta
    recorder.reload()
    for db, line in [
        (0, b"PEXPIREAT t 1000060"),
        (0, b"PERSIST u"),
        (0, b"RENAME s t"),
        (0, b"COPY x s"),
        (0, b"MOVE y 1"),
        (0, b"XADD x 2-1 c d"),
        (0, b"APPEND raw z"),
        (1, b"DEL z"),
        (0, b"SET x 5"),
        (0, b"SWAPDB 0 1"),
    ]:
        recorder.run(db, START, line.split())
    log = recorder.since
    replayed = freezing.load_state(side.rows, side.meta or {})
    for effect in log:
        apply(replayed, effect)
    assert digest(replayed) == digest(recorder.state)
    assert replayed.databases[1].keys[b"raw"].__class__.__name__ == "RawString"
    assert replayed.next_expiry == recorder.state.next_expiry


@pytest.mark.parametrize("failing", [False, True])
def test_a_stream_that_moved_away_outlives_its_table(failing: bool) -> None:
    side = ColdSide()
    side.run(0, START, b"XADD a 1-1 f v".split())
    side.run(0, START, b"XADD b 1-1 f v".split())
    side.freeze()
    side.commit()
    side.reload()
    side.run(0, START, b"MOVE a 1".split())
    if failing:
        side.freeze()
    side.run(0, START, b"FLUSHDB".split())
    side.fail()
    side.freeze()
    side.commit()
    check_rows(side)
    side.reload()
    assert side.run(1, START, b"XLEN a".split()) == 1
    assert side.run(0, START, b"DBSIZE".split()) == 0


def test_streams_that_end_while_a_checkpoint_is_in_flight() -> None:
    side = ColdSide()
    for key in (b"a", b"b", b"c", b"d"):
        side.run(0, START, [b"XADD", key, b"1-1", b"f", b"v"])
    side.freeze()
    side.run(0, START, b"DEL a".split())
    side.run(0, START, b"SET b x".split())
    side.run(0, START, b"RENAME d c".split())
    side.run(0, START, b"XADD c 2-1 f v".split())
    side.commit()
    side.freeze()
    side.commit()
    check_rows(side)
    side.reload()
    assert side.run(0, START, b"XLEN c".split()) == 2


def test_a_row_of_another_key_is_damage() -> None:
    side = filled(2)
    table = side.state.databases[0].table
    payload = side.rows.get(key_row(table, b"key0"))
    side.rows.put(key_row(table, b"key1"), payload)
    with pytest.raises(CorruptBlock, match="key1"):
        side.run(0, START, [b"GET", b"key1"])
    side.rows.put(key_row(table, b"key1"), b"\xc1")
    with pytest.raises(CorruptBlock):
        side.run(0, START, [b"GET", b"key1"])


@pytest.mark.soak
@settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=50, max_size=120))
def test_cold_keys_answer_as_resident_ones_in_long_runs(chosen: list[tuple[Any, ...]]) -> None:
    play(chosen)
