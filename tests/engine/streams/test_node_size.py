"""The size of a node as a sum: the fast way and entry by entry agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.engine.commands.streams.add import decide_xadd_auto, place
from tidelog.engine.effects.apply import apply
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.streams import listpack
from tidelog.engine.streams.columns import EntryRow
from tidelog.engine.streams.stream import Stream

INTEGERS = st.one_of(
    st.integers(0, 20).flatmap(lambda n: st.integers(-(10**n), 10**n)),
    st.sampled_from([127, 128, 4095, 4096, 32767, 32768, 2**23 - 1, 2**23, 2**31, 2**63 - 1]),
).map(lambda number: b"%d" % number)
VALUES = st.one_of(
    INTEGERS,
    st.binary(max_size=5),
    st.sampled_from([b"0", b"00", b"01", b"-0", b"-", b"+1", b"9" * 19, b"9" * 20, b"9" * 21]),
    st.sampled_from([62, 63, 64, 124, 126, 4093, 4096, 20_000]).map(bytes),
)
NAMES = st.lists(st.binary(max_size=3), min_size=1, max_size=3)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[int], list[EntryRow]]:
    names = draw(NAMES)
    entry_id = draw(st.sampled_from([1, (5 << 64) + 300, (1 << 40 << 64) + 2**63, (7 << 64) - 2]))
    ids, rows = [], []
    for _ in range(draw(st.integers(1, 12))):
        ids.append(entry_id)
        step = draw(st.sampled_from([0, 1, 127, 128, 4096, 40_000, 2**23, 2**31, 2**62]))
        seq = draw(st.sampled_from([0, 1, 127, 5_000, 2**64 - 1]))
        entry_id = max(entry_id + 1, ((entry_id >> 64) + step) % 2**64 << 64 | seq)
        own = draw(st.one_of(st.just(names), st.just(names), NAMES))
        rows.append(tuple(part for name in own for part in (name, draw(VALUES))))
    return ids, rows


@given(nodes())
def test_the_sum_agrees_with_the_single_sizes(
    node: tuple[list[int], list[EntryRow]],
) -> None:
    ids, rows = node
    fields = rows[0][::2]
    exact = sum(listpack.entry_sizes(ids, rows, ids[0], fields))
    assert listpack.entries_size(ids, rows, ids[0], fields) == exact


RUNS = st.tuples(
    st.sampled_from([1, 1, 1, 2, 40]),  # milliseconds later
    st.sampled_from([0, 0, 0, 7, 200, 4_000, 4_200, 2**63, 2**64 - 300]),
    st.integers(1, 150),
)


@settings(deadline=None)
@given(st.sampled_from([0, 5, 4_100, 4_300, 2**64 - 200]), st.lists(RUNS, min_size=1, max_size=4))
def test_runs_of_ids_have_the_size_that_single_ones_have(
    first_seq: int, runs: list[tuple[int, int, int]]
) -> None:
    first = (3 << 64) + first_seq
    ids = list(range(first, first + 50))
    for later, seq, count in runs:
        start = ((ids[-1] >> 64) + later << 64) + seq
        ids += range(start, start + count)
    rows = [(b"f", b"value")] * len(ids)
    exact = sum(listpack.entry_sizes(ids, rows, first, (b"f",)))
    assert listpack.entries_size(ids, rows, first, (b"f",)) == exact


@given(st.lists(INTEGERS | VALUES, min_size=1, max_size=30))
def test_every_value_has_the_size_it_has_alone(values: list[bytes]) -> None:
    rows = [(b"f", value) for value in values]
    ids = [(9 << 64) + at for at in range(len(rows))]
    overhead = len(rows) * (listpack.FLAGS + listpack.int_size(4) + 2 + 2)
    assert listpack.entries_size(ids, rows, ids[0], (b"f",)) - overhead == sum(
        map(listpack.size, values)
    )


@given(st.lists(st.sampled_from([1, 3, 8, 30, 100, 900]), min_size=1, max_size=200))
def test_nodes_end_where_the_exact_size_says(lengths: list[int]) -> None:
    """The cut is the one that counting from nothing gives, whatever bounds were asked on the way."""
    state, settings = State(), Settings()
    for at, length in enumerate(lengths):
        row = (b"name", b"7" * length)
        effect = decide_xadd_auto(state, settings, 0, b"s", row, 1_000 + at // 3)
        assert effect is not None
        stream = state.databases[0].keys.get(b"s")
        if isinstance(stream, Stream):
            size = stream.tail_node().node_bytes() + sum(map(len, row))
            full = size >= 4096 or len(stream.tail_ids) >= 100
            assert place(stream, settings, effect[3] << 64 | effect[4], row) == (full, None)
            if at % 7 == 0:
                assert stream.tail_bytes() == stream.tail_node().node_bytes()
        apply(state, effect)
