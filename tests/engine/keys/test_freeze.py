"""A state over a checkpoint beside a plain one: the same commands, the same replies, effects and digests throughout.

In between, what changed is frozen, copied in slices, committed or given up, nodes and whole streams leave memory, and
the state is loaded anew from its rows. The rows of a commit hold the state at the freeze.
"""

from __future__ import annotations

from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.driver import plain
from tests.engine.rows_in_memory import RowsInMemory
from tests.rounds import more

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.execute import decide
from tidelog.engine.commands.streams.add import decide_xadd_many
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.ids import text
from tidelog.engine.keys.freeze import Frozen, freeze, load_state, release, settle, thaw
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.rowkeys import STREAM, stream_row
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream

KEYS = [b"s", b"t"]

words = st.sampled_from([b"", b"a", b"12", b"-7", b"x" * 40, b"y" * 130])
rows = st.lists(st.tuples(words, words), min_size=1, max_size=2).map(
    lambda pairs: tuple(part for pair in pairs for part in pair)
)
keys = st.sampled_from([b"s", b"s", b"s", b"t"])
backs = st.integers(0, 40)
limits = st.tuples(
    st.sampled_from([b"=", b"~"]), backs, st.sampled_from([b"", b"ACKED", b"DELREF"])
)
commands = st.one_of(
    st.tuples(st.just("add"), keys, rows),
    st.tuples(st.just("add"), keys, rows),
    st.tuples(st.just("many"), keys, st.lists(rows, min_size=1, max_size=25)),
    st.tuples(st.just("many"), keys, st.lists(rows, min_size=1, max_size=25)),
    st.tuples(st.just("delete"), keys, st.lists(backs, min_size=1, max_size=8)),
    st.tuples(st.just("delete newest"), keys, st.integers(1, 25)),
    st.tuples(st.just("delete oldest"), keys, st.integers(1, 25)),
    st.tuples(st.just("maxlen"), keys, limits),
    st.tuples(st.just("minid"), keys, limits),
    st.tuples(st.just("add and trim"), keys, limits),
    st.tuples(st.just("setid"), keys, st.tuples(st.integers(0, 30), st.booleans())),
    st.tuples(st.just("idmp"), keys, st.tuples(st.integers(0, 2), st.integers(0, 5))),
    st.tuples(st.just("idmp limits"), keys, st.integers(1, 3)),
    st.tuples(st.just("group"), keys, st.integers(0, 1)),
    st.tuples(st.just("read"), keys, st.tuples(st.integers(0, 1), st.integers(1, 30))),
    st.tuples(st.just("read"), keys, st.tuples(st.integers(0, 1), st.integers(1, 30))),
    st.tuples(
        st.just("ack"), keys, st.tuples(st.integers(0, 1), st.lists(backs, min_size=1, max_size=8))
    ),
    st.tuples(st.just("autoclaim"), keys, st.tuples(st.integers(0, 1), st.integers(0, 1))),
    st.tuples(st.just("end group"), keys, st.integers(0, 1)),
    st.tuples(st.just("tick"), keys, st.integers(0, 40_000)),
    st.tuples(st.just("end"), keys, st.just(None)),
    st.tuples(st.just("rename"), keys, st.just(None)),
    st.tuples(st.just("copy"), keys, st.just(None)),
    st.tuples(st.just("look"), keys, st.tuples(backs, backs, st.integers(1, 30))),
)
storage = st.one_of(
    st.tuples(st.just("freeze"), keys, st.just(None)),
    st.tuples(st.just("take"), keys, st.integers(1, 2)),
    st.tuples(st.just("commit"), keys, st.just(None)),
    st.tuples(st.just("commit"), keys, st.just(None)),
    st.tuples(st.just("fail"), keys, st.just(None)),
    st.tuples(st.just("release"), keys, st.integers(0, 20)),
    st.tuples(st.just("release"), keys, st.just(1000)),
    st.tuples(st.just("evict"), keys, st.just(None)),
    st.tuples(st.just("restart"), keys, st.just(None)),
)
# So that much happens with nodes that are not in memory.
cycle = st.just([("freeze", b"s", None), ("commit", b"s", None), ("release", b"s", 1000)])
failure = st.lists(commands, max_size=4).map(
    lambda some: [
        *[("freeze", b"s", None), *some[:2], ("take", b"s", 9), *some[2:]],
        ("fail", b"s", None),
    ]
)
steps = st.lists(
    st.one_of(
        *[st.lists(commands, min_size=1, max_size=4)] * 3,
        st.lists(storage, min_size=1, max_size=3),
        cycle,
        failure,
    ),
    max_size=14,
).map(lambda parts: [step for part in parts for step in part])


class Side:
    """One state."""

    def __init__(self, slots: int) -> None:
        self.state = State()
        self.settings = Settings()
        self.settings.stream_node_max_entries = slots
        self.settings.stream_node_max_bytes = 300

    def context(self, now: int) -> Context:
        ctx = Context(self.state, self.settings)
        ctx.now = now
        return ctx

    def decide(self, now: int, args: list[bytes]) -> tuple[Any, list[Effect]]:
        ctx = self.context(now)
        try:
            reply = plain(decide(ctx, list(args)))
        except CommandError as refused:
            return f"-{refused}", []
        return reply, ctx.effects


class Both:
    """The plain state, and the one over rows."""

    def __init__(self, slots: int) -> None:
        self.plain = Side(slots)
        self.stored = Side(slots)
        self.rows = RowsInMemory()
        self.stored.state.cold = self.rows
        self.now = 1_000_000
        self.ids: dict[bytes, list[int]] = {key: [] for key in KEYS}
        self.frozen: Frozen | None = None
        self.writing = self.rows
        self.meta: dict[str, Any] = self.stored.state.tables_meta()
        self.frozen_meta = self.meta
        self.frozen_digest = ""
        self.since_commit: list[Effect] = []  # effects that the rows do not hold
        self.since_freeze: list[Effect] = []

    def stream(self, side: Side, key: bytes) -> Stream | None:
        value = side.state.databases[0].keys.get(key)
        assert value is None or isinstance(value, Stream)
        return value

    def resident(self, key: bytes) -> Stream | None:
        return dict.get(self.stored.state.databases[0].keys, key)  # type: ignore[return-value]

    def call(self, *args: bytes) -> Any:
        want, effects = self.plain.decide(self.now, list(args))
        got, same = self.stored.decide(self.now, list(args))
        assert got == want
        assert same == effects
        self.apply(effects)
        return want

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            effect = msgpack.unpackb(msgpack.packb(effect), use_list=False)
            apply(self.plain.state, effect)
            apply(self.stored.state, effect)
            self.since_commit.append(effect)
            self.since_freeze.append(effect)

    def id(self, key: bytes, back: int) -> bytes:
        ids = self.ids[key] or [1 << 64]
        return text(ids[-1 - back % len(ids)])

    def many(self, key: bytes, given: list[Any]) -> None:
        both = []
        for side in (self.plain, self.stored):
            ctx = side.context(self.now)
            both.append((decide_xadd_many(ctx, key, given), ctx.effects))
        assert both[0] == both[1]
        ms, seq, count = both[0][0]
        self.apply(both[0][1])
        self.ids[key] += range(ms << 64 | seq, (ms << 64 | seq) + count)

    def step(self, name: str, key: bytes, how: Any) -> None:
        ids = self.ids[key]
        if name == "add":
            self.call(b"XADD", key, b"*", *how)
            ids.append(self.last(key))
        elif name == "many":
            self.many(key, how)
        elif name == "delete":
            self.call(b"XDEL", key, *[self.id(key, back) for back in how])
        elif name in ("delete newest", "delete oldest"):
            stream = self.stream(self.plain, key)
            held = reading.between(stream, 0, 1 << 127).ids() if stream else [1]
            some = held[-how:] if name == "delete newest" else held[:how]
            self.call(b"XDEL", key, *map(text, some or [1]))
        elif name == "maxlen":
            self.call(b"XTRIM", key, b"MAXLEN", how[0], b"%d" % how[1], *filter(None, how[2:]))
        elif name == "minid":
            self.call(b"XTRIM", key, b"MINID", how[0], self.id(key, how[1]), *filter(None, how[2:]))
        elif name == "add and trim":
            words = [b"MAXLEN", how[0], b"%d" % how[1], *filter(None, how[2:])]
            self.call(b"XADD", key, *words, b"*", b"f", b"v")
            ids.append(self.last(key))
        elif name == "setid":
            stream = self.stream(self.plain, key)
            last = stream.last_live_id() if stream else 0
            words = [b"ENTRIESADDED", b"1000", b"MAXDELETEDID", text(last)] if how[1] else []
            self.call(b"XSETID", key, text(last + how[0]), *words)
        elif name == "idmp":
            self.call(b"XADD", key, b"IDMP", b"p%d" % how[0], b"i%d" % how[1], b"*", b"f", b"v")
            ids.append(self.last(key))
        elif name == "idmp limits":
            self.call(
                b"XCFGSET", key, b"IDMP-DURATION", b"%d" % (10 * how), b"IDMP-MAXSIZE", b"%d" % how
            )
        elif name == "group":
            self.call(b"XGROUP", b"CREATE", key, b"g%d" % how, b"0")
        elif name == "read":
            words = [b"GROUP", b"g%d" % how[0], b"c%d" % (how[1] & 1), b"COUNT", b"%d" % how[1]]
            self.call(b"XREADGROUP", *words, b"STREAMS", key, b">")
            self.call(b"XREADGROUP", *words, b"STREAMS", key, b"0")
        elif name == "ack":
            self.call(b"XACK", key, b"g%d" % how[0], *[self.id(key, back) for back in how[1]])
        elif name == "autoclaim":
            words = [b"g%d" % how[0], b"c%d" % how[1], b"10", b"0"]
            self.call(b"XAUTOCLAIM", key, *words)
            self.call(b"XPENDING", key, words[0])
        elif name == "end group":
            self.call(b"XGROUP", b"DESTROY", key, b"g%d" % how)
        elif name == "tick":
            self.now += how
        elif name == "end":
            self.call(b"DEL", key)
        elif name == "rename":
            self.call(b"RENAME", key, KEYS[1 - KEYS.index(key)])
            self.ids = {one: self.ids[KEYS[1 - KEYS.index(one)]] for one in KEYS}
        elif name == "copy":
            other = KEYS[1 - KEYS.index(key)]
            self.call(b"COPY", key, other, b"REPLACE")
            self.ids[other] = self.ids[key][:]
        elif name == "look":
            first, last, count = how
            start, end = sorted((self.id(key, first), self.id(key, last)))
            self.call(b"XRANGE", key, start, end)
            self.call(b"XRANGE", key, start, b"+", b"COUNT", b"%d" % count)
            self.call(b"XREVRANGE", key, end, b"-", b"COUNT", b"%d" % count)
            self.call(b"XREAD", b"COUNT", b"%d" % count, b"STREAMS", key, start)
            self.call(b"XINFO", b"STREAM", key)
            self.call(b"XLEN", key)
            if self.stream(self.plain, key) is not None:
                for entry_id in self.ids[key][:: max(1, first)]:
                    here, there = self.stream(self.plain, key), self.stream(self.stored, key)
                    assert here is not None and there is not None
                    assert here.get(entry_id) == there.get(entry_id)
        else:
            self.store(name, key, how)

    def last(self, key: bytes) -> int:
        stream = self.stream(self.plain, key)
        return stream.last_id if stream is not None else 1

    def store(self, name: str, key: bytes, how: Any) -> None:
        state = self.stored.state
        if name == "freeze" and self.frozen is None:
            self.frozen_digest = digest(self.plain.state)
            self.frozen_meta = state.tables_meta()
            self.frozen = freeze(state)
            self.since_freeze = []
            self.writing = self.rows.copy()
        elif name == "take" and self.frozen is not None:
            self.frozen.take_some(how)
            self.writing.write(self.frozen.rows(self.writing))
        elif name == "commit" and self.frozen is not None:
            while self.frozen.take_some(1):
                self.writing.write(self.frozen.rows(self.writing))
            self.writing.write(self.frozen.rows(self.writing))
            self.rows._keys, self.rows._payloads = self.writing._keys, self.writing._payloads
            settle(state, self.frozen)
            self.frozen, self.meta = None, self.frozen_meta
            self.since_commit, self.since_freeze = self.since_freeze, []
            loaded = load_state(self.rows, self.meta)
            assert digest(loaded) == self.frozen_digest
        elif name == "fail" and self.frozen is not None:
            thaw(state, self.frozen)
            self.frozen = None
        elif name == "release":
            stream = self.resident(key)
            if isinstance(stream, Stream):
                release(state, stream, stream.first_ordinal + how)
        elif name == "evict" and self.frozen is None:
            stream = self.resident(key)
            if isinstance(stream, Stream):
                state.databases[0].keys.evict(key)  # refused where the key changed meanwhile
        elif name == "restart":
            self.frozen = None
            self.stored.state = load_state(self.rows, self.meta)
            for effect in self.since_commit:
                apply(self.stored.state, effect)

    def check(self) -> None:
        assert digest(self.stored.state) == digest(self.plain.state)
        for key in KEYS:
            stream, same = self.resident(key), self.stream(self.plain, key)
            if isinstance(stream, Stream):
                stream.check()
                for group in stream.groups.values():
                    group.pending.check()
                assert same is not None
                nodes = [
                    (node.ordinal, node.count, node.deleted, node.first, node.last)
                    for node in stream.walk()
                ]
                assert nodes == [
                    (node.ordinal, node.count, node.deleted, node.first, node.last)
                    for node in same.walk()
                ]
                assert stream.first_id() == same.first_id()
                assert stream.last_live_id() == same.last_live_id()
                assert stream.removed_max >= same.removed_max


@settings(max_examples=70, deadline=None)
@given(slots=st.sampled_from([1, 2, 3, 5]), steps=steps)
def test_a_state_over_a_checkpoint_is_like_any_other(
    slots: int, steps: list[tuple[str, bytes, Any]]
) -> None:
    both = Both(slots)
    for name, key, how in steps:
        both.step(name, key, how)
        both.check()
    if both.frozen is None:
        both.store("freeze", b"s", None)
    both.store("commit", b"s", None)
    both.store("restart", b"s", None)
    both.check()


test_more_a_state_over_a_checkpoint_is_like_any_other = more(
    test_a_state_over_a_checkpoint_is_like_any_other, 200
)


def test_new_streams_are_put_in_the_order_of_their_rows() -> None:
    """LMDB fills its pages only from rows in order. A stream that changes before its turn is put before the others."""
    side = Side(5)

    def add(number: int) -> None:
        for effect in side.decide(1_000_000, [b"XADD", b"s%d" % number, b"*", b"f", b"v"])[1]:
            apply(side.state, effect)

    for number in range(50):
        add(number)
    numbers = list(side.state.changes.streams)
    frozen = freeze(side.state)

    def stream_rows(frozen: Frozen) -> list[bytes]:
        operations = frozen.rows(RowsInMemory())
        return [op[1] for op in operations if op[0] == "put" and op[1][:1] == STREAM]

    left = frozen.take_some(7)
    found: list[bytes] = []
    add(20)
    while left:
        found += stream_rows(frozen)
        left = frozen.take_some(7)
    found += stream_rows(frozen)
    early = found.pop(7)
    assert early == stream_row(numbers[20])
    assert found == [stream_row(number) for number in numbers if number != numbers[20]]
    assert found == sorted(found)
    thaw(side.state, frozen)
    assert sorted(side.state.changes.streams) == numbers
