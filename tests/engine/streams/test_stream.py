"""A stream against a plain list of entries: the same operations, the same answers, and the log replays."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.driver import Engine
from tests.rounds import more

from tidelog.engine import idlist
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.add import decide_xadd_auto, decide_xadd_many, xadd
from tidelog.engine.commands.streams.delete import log_delete
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import OPCODE
from tidelog.engine.ids import MAX, text
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.reply import OK
from tidelog.engine.streams import reading
from tidelog.engine.streams.entries import Entries
from tidelog.engine.streams.stream import Stream

KEY = b"s"

words = st.sampled_from([b"", b"a", b"bc", b"12", b"-7", b"x" * 40, b"y" * 130])
rows = st.lists(st.tuples(words, words), min_size=1, max_size=3).map(
    lambda pairs: tuple(part for pair in pairs for part in pair)
)
alike = st.lists(st.tuples(words, words), min_size=1, max_size=25).map(
    lambda values: [(b"one", first, b"two", second) for first, second in values]
)
numbers = st.integers(0, 30)
operations = st.one_of(
    st.tuples(st.just("add"), rows),
    st.tuples(st.just("add"), rows),
    st.tuples(st.just("many"), st.one_of(alike, st.lists(rows, min_size=1, max_size=25))),
    st.tuples(st.just("delete"), st.lists(numbers, min_size=1, max_size=8)),
    st.tuples(st.just("delete newest"), numbers),
    st.tuples(st.just("maxlen"), numbers),
    st.tuples(st.just("minid"), numbers),
    st.tuples(st.just("setid"), st.integers(0, 3)),
    st.tuples(st.just("setid back"), st.integers(0, 3)),
    st.tuples(st.just("tick"), numbers),
)


class Model:
    """The stream, and what it should hold."""

    def __init__(self, slots: int, size: int) -> None:
        self.engine = Engine()
        self.engine.ctx.settings.stream_node_max_entries = slots
        self.engine.ctx.settings.stream_node_max_bytes = size
        self.held: list[tuple[int, Any]] = []
        self.ids: list[int] = []

    @property
    def stream(self) -> Stream:
        stream = self.engine.state.databases[0].keys[KEY]
        assert isinstance(stream, Stream)
        return stream

    def added(self, new: list[tuple[int, Any]]) -> None:
        self.held += new
        self.ids += [entry_id for entry_id, _ in new]

    def step(self, name: str, how: Any) -> None:
        engine, held = self.engine, self.held
        if name == "add":
            engine.raw("XADD", KEY, "*", *how)
            self.added([(self.stream.last_id, how)])
        elif name == "many":
            ctx = engine.ctx
            ctx.effects, ctx.now = [], engine.now
            ms, seq, count = decide_xadd_many(ctx, KEY, how)
            for effect in ctx.effects:
                apply(engine.state, effect)
            first = ms << 64 | seq
            self.added(list(zip(range(first, first + count), how)))
            assert count == len(how)
            assert self.stream.last_id == first + count - 1
        elif name in ("delete", "delete newest"):
            recent = self.ids[-30:]
            doomed = (
                [recent[at % len(recent)] for at in how] if name == "delete" else self.ids[-how:]
            )
            gone = {entry_id for entry_id, _ in held} & set(doomed)
            assert engine.raw("XDEL", KEY, *map(text, doomed)) == len(gone)
            held[:] = [entry for entry in held if entry[0] not in gone]
        elif name == "maxlen":
            assert engine.raw("XTRIM", KEY, "MAXLEN", how) == max(len(held) - how, 0)
            held[:] = held[max(len(held) - how, 0) :]
        elif name == "minid":
            least = self.ids[-min(how, len(self.ids))] if how else MAX
            kept = [entry for entry in held if entry[0] >= least]
            assert engine.raw("XTRIM", KEY, "MINID", text(least)) == len(held) - len(kept)
            held[:] = kept
        elif name == "setid":
            lowest = max(held[-1][0] if held else 0, self.stream.max_deleted_id)
            engine.raw("XSETID", KEY, text(lowest + how))
        elif name == "setid back":
            # The IDs of deleted entries can be given again.
            top = text(max(self.stream.last_id, self.stream.max_deleted_id))
            assert engine.raw("XSETID", KEY, top, "MAXDELETEDID", "0-1") == OK
            lowest = max(held[-1][0] if held else 0, 1)
            assert engine.raw("XSETID", KEY, text(lowest + how)) == OK
        else:
            engine.now += how

    def check(self) -> None:
        stream, held = self.stream, self.held
        stream.check()
        assert stream.length == len(held)
        assert stream.first_id() == (held[0][0] if held else 0)
        assert stream.last_live_id() == (held[-1][0] if held else 0)


@settings(max_examples=100, deadline=None)
@given(
    slots=st.sampled_from([0, 1, 2, 7, 100]),
    size=st.sampled_from([0, 90, 300, 4096]),
    steps=st.lists(operations, min_size=3, max_size=30),
    looks=st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6),
)
def test_a_stream_is_a_list(
    slots: int, size: int, steps: list[tuple[str, Any]], looks: list[tuple[int, int, int]]
) -> None:
    model = Model(slots, size)
    model.step("add", (b"f", b"v"))
    for name, how in steps:
        model.step(name, how)
        model.check()
    stream, held, ids = model.stream, model.held, model.ids
    live = {entry_id: row for entry_id, row in held}
    for entry_id in ids:
        assert stream.get(entry_id) == live.get(entry_id)
        assert stream.contains(entry_id) == stream.still_has(entry_id) == (entry_id in live)
        one = [(entry_id, live[entry_id])] if entry_id in live else []
        assert_shows(reading.between(stream, entry_id, entry_id), one)
    for low, high, count in [(0, 0, 1), *looks]:
        start, end = sorted((ids[low % len(ids)], ids[high % len(ids)]))
        inside = [entry for entry in held if start <= entry[0] <= end]
        views: list[tuple[Entries, list[tuple[int, Any]]]] = [
            (reading.between(stream, 0, MAX), held),
            (reading.between(stream, start, end), inside),
            (reading.between(stream, start, end, count), inside[:count]),
            (reading.between(stream, start, end, count, reverse=True), inside[::-1][:count]),
            (reading.between(stream, end, start, reverse=True), inside if start == end else []),
        ]
        for view, expected in views:
            assert_shows(view, expected)


test_more_a_stream_is_a_list = more(test_a_stream_is_a_list, 300)


def assert_shows(view: Entries, expected: list[tuple[int, Any]]) -> None:
    """Every rendering of a view agrees with the entries."""
    assert list(view) == expected
    assert len(view) == len(expected)
    ids = [entry_id for entry_id, _ in expected]
    assert view.ids() == ids
    assert view.idlist() == idlist.pack(ids)
    assert view.pairs() == [(text(i), dict(zip(row[::2], row[1::2]))) for i, row in expected]


@settings(max_examples=80, deadline=None)
@given(
    slots=st.sampled_from([0, 2, 7, 100]),
    size=st.sampled_from([90, 300, 4096]),
    before=st.integers(0, 12),
    doomed=st.sets(st.integers(0, 11)),
    batch=st.one_of(alike, st.lists(rows, min_size=1, max_size=40)),
    repeat=st.sampled_from([1, 1, 9]),
)
def test_many_cuts_nodes_where_single_adds_do(
    slots: int,
    size: int,
    before: int,
    doomed: set[int],
    batch: list[tuple[bytes, ...]],
    repeat: int,
) -> None:
    batch = batch * repeat
    limits = Settings()
    limits.stream_node_max_entries, limits.stream_node_max_bytes = slots, size
    singly, at_once = State(), State()
    for state in (singly, at_once):
        ctx = Context(state, limits)
        ctx.now = 5
        for at in range(before):
            add(ctx, (b"one", b"%d" % at, b"two", b"z" * at))
        stream = state.databases[0].keys.get(KEY)
        if isinstance(stream, Stream):
            ctx.effects = []
            log_delete(ctx, KEY, stream, [5 << 64 | at for at in doomed])
            run(ctx)
    ctx = Context(singly, limits)
    ctx.now = 6
    for row in batch:
        add(ctx, row)
    ctx = Context(at_once, limits)
    ctx.now = 6
    assert decide_xadd_many(ctx, KEY, batch) == (6, 0, len(batch))
    run(ctx)
    one, other = singly.databases[0].keys[KEY], at_once.databases[0].keys[KEY]
    assert isinstance(one, Stream) and isinstance(other, Stream)
    other.check()
    assert [(n.count, n.deleted) for n in one.walk()] == [
        (n.count, n.deleted) for n in other.walk()
    ]
    assert digest(singly) == digest(at_once)


test_more_many_cuts_nodes_where_single_adds_do = more(
    test_many_cuts_nodes_where_single_adds_do, 200
)


def add(ctx: Context, row: tuple[bytes, ...]) -> None:
    """One add on the fast path; where that declines, on the general one. Both decide the same."""
    ctx.effects = []
    fast = decide_xadd_auto(ctx.state, ctx.settings, ctx.db, KEY, row, ctx.now)
    xadd(ctx, [b"XADD", KEY, b"MAXLEN", b"1000000", b"*", *row])
    if fast is not None:
        assert [(fast[0] & OPCODE, *fast[1:])] == ctx.effects
    else:
        assert len(ctx.effects) == 2
    run(ctx)


def run(ctx: Context) -> None:
    for effect in ctx.effects:
        apply(ctx.state, effect)
    ctx.effects = []


def test_dropping_the_head_stays_cheap_and_gives_memory_back() -> None:
    engine = Engine()
    engine.ctx.settings.stream_node_max_entries = 1
    for _ in range(2000):
        engine("XADD s MAXLEN 10 * f v")
    stream = engine.state.databases[0].keys[KEY]
    assert isinstance(stream, Stream)
    assert len(stream.blocks) < 200
    engine.check()


def test_a_node_that_dies_in_the_middle_leaves_the_others_their_ordinals() -> None:
    engine = Engine()
    engine.ctx.settings.stream_node_max_entries = 2
    for seq in range(1, 9):
        engine(f"XADD s 1-{seq} f v")
    stream = engine.state.databases[0].keys[KEY]
    assert isinstance(stream, Stream)
    before = [node.ordinal for node in stream.walk()]
    assert engine("XDEL s 1-3 1-4") == 2
    assert [node.ordinal for node in stream.walk()] == [before[0], *before[2:]]
    assert stream.find(1 << 64 | 5) == (before[2], 0)
    assert engine("XDEL s 1-1 1-2") == 2
    assert [node.ordinal for node in stream.walk()] == before[2:]
    engine.check()


def test_the_last_node_is_opened_again_when_its_successor_is_gone() -> None:
    engine = Engine()
    engine.ctx.settings.stream_node_max_bytes = 200
    for seq in range(1, 4):
        engine(f"XADD s 1-{seq} f {'v' * 70}")
    stream = engine.state.databases[0].keys[KEY]
    assert isinstance(stream, Stream)
    assert [node.count for node in stream.walk()] == [2, 1]
    engine("XDEL s 1-3")
    assert engine("XADD s 1-4 f v") == "1-4"
    assert [node.count for node in stream.walk()] == [3]
    engine.check()
