"""Each fast path of reading and acknowledging does what the plain one beside it does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.driver import Engine

from tidelog.engine.errors import CommandError
from tidelog.engine.idargs import id_list
from tidelog.engine.idlist import pack
from tidelog.engine.ids import MAX, parse_many
from tidelog.engine.stream import Stream

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
        ]
    ),
)


@given(st.lists(id_texts, min_size=1, max_size=4))
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
            after = stream.after(start << 64, count)
            assert after == stream.range((start << 64) + 1, MAX, count)
            assert len(after) == len(list(after))
            assert after.idlist() == pack(after.ids())
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
