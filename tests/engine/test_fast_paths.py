"""Each fast path of reading and acknowledging does what the plain one beside it does."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.driver import Engine
from tests.engine.rows_in_memory import RowsInMemory
from tests.rounds import more

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups import ack, readgroup
from tidelog.engine.commands.groups.readgroup import log_new, next_one
from tidelog.engine.effects.apply import apply
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import XACK, XACKDEL, XDEL, Effect
from tidelog.engine.errors import CommandError
from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.idargs import id_list
from tidelog.engine.idlist import pack, unpack
from tidelog.engine.ids import MAX, parse_many
from tidelog.engine.keys import freeze as freeze_of
from tidelog.engine.keys.freeze import Frozen, freeze, settle, thaw
from tidelog.engine.keys.state import State
from tidelog.engine.reply import Park
from tidelog.engine.streams import block, reading
from tidelog.engine.streams.lag import estimate
from tidelog.engine.streams.stream import Stream

numbers = st.one_of(
    st.integers(0, 5),
    st.sampled_from([2**22 - 1, 2**22, 2**42 - 1, 2**42, 2**64 - 1, 2**64, 10**13, 10**7]),
)
id_texts = st.one_of(
    st.builds(lambda ms, seq: b"%d-%d" % (ms, seq), numbers, numbers),
    st.sampled_from(
        [
            b"5",
            b"",
            b"-",
            b"+",
            b"1-1,2-2",
            b"1-2-3",
            b"007-01",
            b" 1-1",
            b"1_0-1",
            b"1-1\n",
            b"(1-1",
            b"9" * 100 + b"-1",
            b"9" * 5_000 + b"-1",  # more than int() takes
        ]
    ),
)


@given(st.lists(id_texts, min_size=1, max_size=4))
@example([b"0" * 124 + b"5-1"])
@example([b"0" * 125 + b"5-1"])  # a byte longer than Redis reads
def test_ids_read_in_bulk_are_ids_read_one_by_one(args: list[bytes]) -> None:
    try:
        expected = pack(parse_many(args))
    except CommandError as refused:
        try:
            got: object = id_list(args)
        except CommandError as also:
            got = also.line
        assert got == refused.line
    else:
        assert id_list(args) == expected


def apart(effect: Effect) -> list[Effect]:
    """An acknowledgement that deletes, as one XACK and one XDEL for each of its IDs."""
    if effect[0] != XACKDEL:
        return [effect]
    _, db, key, group, listed, slots = effect
    parts: list[Effect] = []
    for at, id in enumerate(unpack(listed)):
        parts.append((XACK, db, key, group, pack([id])))
        parts.append((XDEL, db, key, pack([id]), slots[2 * at : 2 * at + 2]))
    return parts


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds("XADD s * f {}".format, st.integers(0, 9)),
            st.builds(
                "XREADGROUP GROUP {} c COUNT {} STREAMS s >".format,
                st.sampled_from("gh"),
                st.integers(1, 9),
            ),
            st.builds("XDEL s {}-0".format, st.integers(1, 20)),
            st.builds("XGROUP SETID s g {}-0".format, st.integers(0, 9)),
            st.builds(
                lambda policy, ids: (
                    f"XACKDEL s g {policy} IDS {len(ids)} " + " ".join(f"{n}-0" for n in ids)
                ),
                st.sampled_from(["KEEPREF", "DELREF", "ACKED"]),
                st.lists(st.integers(1, 20), min_size=1, max_size=9),
            ),
        ),
        max_size=60,
    ),
    st.integers(1, 6),
)
def test_to_acknowledge_and_delete_at_once_is_to_do_both_one_by_one(
    lines: list[str], node_entries: int
) -> None:
    engine, other = Engine(), State()
    engine.ctx.settings.stream_node_max_entries = node_entries
    engine.now = 0
    for line in ["XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE s h 0", *lines]:
        engine.now += line.startswith("XADD")
        before, each = engine("XLEN s"), Context(engine.state, engine.ctx.settings)
        if line.startswith("XACKDEL"):
            stream = engine.state.databases[0].keys[b"s"]
            assert isinstance(stream, Stream)
            policy, *listed = line.encode().split()[3:]
            expected = ack._ackdel_each(each, b"s", stream, b"g", policy, parse_many(listed[2:]))
        reply = engine(line)
        if line.startswith("XACKDEL"):
            assert (reply, engine.effects) == (expected, each.effects)
            effects, gone = engine.effects, before - engine("XLEN s")
            # One effect where what is acknowledged and what is deleted are the same.
            assert (gone == len(reply) - reply.count(-1) > 0) == (
                effects[:1] != [] and effects[0][0] == XACKDEL
            )
            engine.effects = effects
        for effect in engine.effects:
            for part in apart(effect):
                apply(other, part)
        assert digest(engine.state) == digest(other)
        one, both = (state.databases[0].keys[b"s"] for state in (engine.state, other))
        assert isinstance(one, Stream) and isinstance(both, Stream)
        assert one.removed_max == both.removed_max and one.first_ordinal == both.first_ordinal
        nodes = [[(node.ordinal, node.deleted) for node in stream.walk()] for stream in (one, both)]
        assert nodes[0] == nodes[1]
        one.first_id()  # known from here on, and found without a search
        for node in one.walk():
            for slot, id in enumerate(node.ids()):
                assert one.find(id) == (None if node.deleted >> slot & 1 else (node.ordinal, slot))
    engine.check()


test_more_acknowledged_and_deleted = more(
    test_to_acknowledge_and_delete_at_once_is_to_do_both_one_by_one, 200
)


steps = st.lists(
    st.one_of(
        st.builds(lambda n: f"ADD {n}", st.integers(1, 3)),
        st.builds(lambda n: f"XDEL s {n}-0", st.integers(1, 30)),
        st.builds(lambda n: f"XTRIM s MAXLEN {n}", st.integers(0, 12)),
        st.just("XSETID s 40-0"),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(1, 5))
def test_what_comes_after_an_id_and_what_is_still_there(actions: list[str], node: int) -> None:
    engine = Engine()
    engine.ctx.settings.stream_node_max_entries = node
    added: list[int] = []
    last = 0
    engine("XGROUP CREATE s g 0 MKSTREAM")
    for action in actions:
        if action.startswith("ADD"):
            last += int(action.split()[1])
            if not engine(f"XADD s {last}-0 f v").startswith("-"):
                added.append(last << 64)
        else:
            engine(action)
    stream = engine.state.databases[0].keys[b"s"]
    assert isinstance(stream, Stream)
    for start in range(0, last + 2):
        for count in (1, 2, 3, 50):
            after = reading.after(stream, start << 64, count)
            assert after == reading.between(stream, (start << 64) + 1, MAX, count)
            assert len(after) == len(list(after))
            assert after.idlist() == pack(after.ids())
            assert not after or after.first_id() == after.ids()[0]
        assert reading.next_after(stream, start << 64) == next(
            iter(reading.after(stream, start << 64, 1)), None
        )
        assert (
            not reading.one_at_most_after(stream, start << 64)
            or len(reading.after(stream, start << 64, 2)) < 2
        )
        stream.check()
    for entry_id in added:
        assert stream.still_has(entry_id) == stream.contains(entry_id)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=8), st.integers(1, 7), st.booleans())
def test_the_plain_read_is_the_read_with_options(
    deletions: list[int], count: int, twice: bool
) -> None:
    """The same words in lower case take the long way."""
    plain, optioned = Engine(), Engine()
    for engine in (plain, optioned):
        for n in range(1, 21):
            engine(f"XADD s {n}-0 f {n}")
        engine("XGROUP CREATE s g 0")
        for n in deletions:
            engine(f"XDEL s {n * n}-0")
        if twice:
            engine("XREADGROUP GROUP g other COUNT 3 STREAMS s >")
            engine("XGROUP SETID s g 1-0")
    while True:
        short = plain(f"XREADGROUP GROUP g c COUNT {count} STREAMS s >")
        assert short == optioned(f"xreadgroup group g c count {count} streams s >")
        assert plain.effects == optioned.effects
        if short is None:
            break
    plain.check()


readers = st.one_of(
    st.builds(lambda n: f"ADD {n}", st.integers(1, 3)),
    st.builds(lambda n: f"XDEL s {n}-0", st.integers(1, 12)),
    st.builds(lambda n: f"XTRIM s MAXLEN {n}", st.integers(0, 6)),
    st.builds(
        lambda n, read: f"XGROUP SETID s g {n}-0{read}",
        st.integers(0, 15),
        st.sampled_from(["", " ENTRIESREAD 3"]),
    ),
    st.builds(lambda n: f"XSETID s 99-0 ENTRIESADDED 50 MAXDELETEDID {n}-0", st.integers(0, 12)),
    st.just("READ"),
    st.just("WORK OFF"),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(readers, max_size=30), st.integers(1, 5))
def test_one_message_is_counted_and_logged_as_many_are(actions: list[str], node: int) -> None:
    engine = Engine()
    engine.ctx.settings.stream_node_max_entries = node
    engine("XGROUP CREATE s g 0 MKSTREAM")
    added = 0
    for action in actions:
        if action.startswith("ADD"):
            for _ in range(int(action.split()[1])):
                added += 1
                engine(f"XADD s {added}-0 f v")
        elif action in ("READ", "WORK OFF"):
            stream, group = engine.state.databases[0].keys[b"s"], engine.group()
            assert isinstance(stream, Stream)
            engine.ctx.effects = []
            plain = reading.between(stream, group.last_id + 1, MAX, 1)
            if plain:
                log_new(engine.ctx, b"s", stream, group, b"c", plain)
                (entry_id,) = plain.ids()
                read = read_by_the_rule(stream, group, entry_id)
                assert engine.ctx.effects[0][-1] == read
            effects, engine.ctx.effects = engine.ctx.effects, []
            assert next_one(engine.ctx, b"s", stream, group, b"c") == next(iter(plain), None)
            assert engine.ctx.effects == effects
            for done in engine("XREADGROUP GROUP g c COUNT 1 STREAMS s >") or ():
                if action == "WORK OFF":
                    engine(f"XDEL s {done[1][0][0]}")
        else:
            engine(action)
        engine.check()


test_more_single_messages = more(test_one_message_is_counted_and_logged_as_many_are, 300)


def read_by_the_rule(stream: Stream, group: Group, entry_id: int) -> int:
    """entries-read after the delivery of the entry that comes next (spec 9), with nothing known beforehand."""
    tombstone = stream.max_deleted_id
    counts = group.last_id >= stream.first_id() and (not tombstone or group.last_id > tombstone)
    if counts and group.entries_read != UNKNOWN:
        return group.entries_read + 1
    return estimate(stream, entry_id)


numerals = st.sampled_from(
    "1 2 3 7 10 0 00 01 -1 +1 1_0 1.0 \u0663 x 5000 999999999999999 1000000000000000".split()
    + ["9223372036854775807", "99999999999999999999", ""]
)
options = st.one_of(
    st.builds(lambda n: f"COUNT {n}", numerals),
    st.builds(lambda n: f"BLOCK {n}", numerals),
    st.sampled_from(["COUNT 2", "BLOCK 0", "BLOCK 50", "COUNT 2 BLOCK 0", "BLOCK 70 COUNT 1"]),
    st.sampled_from(
        ["NOACK", " ", "block 5", "count 5", "CLAIM 0", "MAXCOUNT 1", "COUNT", "STREAMS s"]
    ),
)
reads = st.builds(
    lambda group, consumer, given_, key, id_: " ".join(
        ["XREADGROUP GROUP", group, consumer, *given_, "STREAMS", key, id_]
    ),
    st.sampled_from(["g", "g", "g", "h", "COUNT"]),
    st.sampled_from(["c", "d", "STREAMS"]),
    st.lists(options, max_size=3),
    st.sampled_from(["s", "s", "s", "t", "string", "gone", "s s", "STREAMS"]),
    st.sampled_from([">", ">", ">", ">", "0", "$", "> >"]),
)
writes = st.one_of(
    st.integers(1, 4).map(lambda n: f"ADD {n}"),
    st.sampled_from(
        ["XTRIM s MAXLEN 2", "XGROUP SETID s g 1-0", "XGROUP DESTROY s g", "XGROUP CREATE s g 0"]
        + [
            "PEXPIRE s 3",
            "DEL s",
            "XGROUP CREATE s COUNT $ MKSTREAM",
            "XGROUP CREATE s g $ MKSTREAM",
        ]
        + ["TICK 1", "TICK 4"]
    ),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(reads, reads, writes), max_size=30), st.booleans())
def test_a_read_by_the_short_way_is_the_read_by_the_long_way(
    lines: list[str], may_block: bool
) -> None:
    short, long = Engine(), Engine()
    for engine in (short, long):
        engine.ctx.may_block = may_block
        engine("SET string x")
        engine("XGROUP CREATE s g 0 MKSTREAM")
        engine("XGROUP CREATE t g 0 MKSTREAM")
    added = 0
    for line in lines:
        if line.startswith("TICK"):
            short.now = long.now = short.now + int(line.split()[1])
            continue
        if line.startswith("ADD"):
            for _ in range(int(line.split()[1])):
                added += 1
                for engine in (short, long):
                    engine(f"XADD s {added}-0 f v")
            continue
        got = everything(short, line)
        with patch.object(readgroup, "_plain_read", lambda ctx, args: None):
            assert got == everything(long, line)
    short.check()


test_more_reads_by_the_short_way = more(
    test_a_read_by_the_short_way_is_the_read_by_the_long_way, 300
)


def everything(engine: Engine, line: str) -> tuple[Any, ...]:
    """The result of a command: reply or error, effects, and which keys it has named."""
    reply: Any
    try:
        reply = engine.raw(*line.split(" "))
        if isinstance(reply, Park):
            reply = [getattr(reply, name) for name in Park.__slots__]
    except CommandError as refused:
        reply = refused.line
    accessed = engine.state.databases[0].keys.accessed
    return reply, type(reply), engine.effects, dict(accessed)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, unique=True))
def test_ids_of_a_block_by_millisecond_are_those_id_by_id(pairs: list[tuple[int, int]]) -> None:
    entry_ids = [1000 + ms << 64 | seq for ms, seq in sorted(pairs)]
    assert block._stretches(entry_ids) == block._id_by_id(entry_ids)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds("XADD {} * f v{}".format, st.sampled_from("abc"), st.integers(0, 99)),
            st.builds("XADD {} * f v NOT-ALIKE v".format, st.sampled_from("abc")),
            st.builds("XTRIM {} MAXLEN {}".format, st.sampled_from("abc"), st.integers(0, 5)),
            st.builds("XDEL {} 1-{}".format, st.sampled_from("abc"), st.integers(0, 9)),
            st.builds("XSETID {} 9-9".format, st.sampled_from("abc")),
            st.builds("XGROUP CREATE {} g 0 MKSTREAM".format, st.sampled_from("abc")),
            st.builds("DEL {}".format, st.sampled_from("abc")),
            st.sampled_from(["FREEZE", "TAKE", "STORED", "FAILED"]),
        ),
        max_size=40,
    ),
    st.integers(1, 6),
)
def test_a_plain_copy_gives_the_rows_of_a_frozen_stream(lines: list[str], slots: int) -> None:
    """Checkpoints of the same history with and without `copy_plain`, some of which fail, hold the same rows."""
    sides = [(Engine(), RowsInMemory(), True), (Engine(), RowsInMemory(), False)]
    for engine, rows, plain in sides:
        engine.ctx.settings.stream_node_max_entries = slots
        engine.now = 1
        frozen: Frozen | None = None
        patched = None if plain else patch.object(freeze_of, "copy_plain", lambda *told: None)
        with patched or nullcontext():
            for line in [*lines, "FREEZE", "STORED", "FREEZE", "STORED"]:
                if line == "FREEZE":
                    frozen = frozen or freeze(engine.state)
                elif line == "TAKE":
                    if frozen is not None:
                        frozen.take_some(1)
                elif line in ("STORED", "FAILED"):
                    if frozen is not None:
                        while frozen.take_some(2):
                            pass
                        if line == "STORED":
                            rows.write(list(frozen.rows(rows)))
                            settle(engine.state, frozen)
                        else:
                            thaw(engine.state, frozen)
                    frozen = None
                else:
                    engine(line)
    (one, one_rows, _), (other, other_rows, _) = sides
    assert digest(one.state) == digest(other.state)
    assert list(one_rows.rows(b"")) == list(other_rows.rows(b""))
