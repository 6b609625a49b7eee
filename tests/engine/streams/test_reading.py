"""Entries that have a field: found in any stream, and the nodes without it are passed over."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.streams.cold import Store, entry, stored

from tidelog.engine.ids import MAX
from tidelog.engine.streams import block, reading
from tidelog.engine.streams.block import Decoded
from tidelog.engine.streams.stream import Stream

WORDS = [b"f", b"g", b"origin"]
Step = tuple[bytes, bytes] | int | str
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)),
        st.integers(0, 40),
        st.just("COMMIT"),
    ),
    max_size=40,
)


def found(stream: Stream, start: int) -> list[tuple[int, object]]:
    """The entries that `having` gives, in any case those with the field."""
    every = reading.having(stream, b"origin", start)
    return [
        pair for _, _, entries in every for pair in entries if b"origin" in (pair[1] or ())[::2]
    ]


@settings(max_examples=200, deadline=None)
@given(steps)
def test_entries_with_a_field_are_those_among_all(actions: list[Step]) -> None:
    store, number = Store(1), 10
    store.ctx.settings.stream_node_max_entries = 4
    for action in actions:
        if isinstance(action, str):
            store.commit()
        elif isinstance(action, int):
            store.raw(b"XDEL", b"s", b"%d-1" % action)
        else:
            store.raw(b"XADD", b"s", b"%d-1" % number, *action)
            number += 1
    stream = store.stream
    for start in range(0, number + 2):
        wanted = [
            (job, row)
            for job, row in reading.between(stream, entry(start), MAX)
            if b"origin" in (row or ())[::2]
        ]
        assert found(stream, entry(start)) == wanted
        ends = [last for last, _, _ in reading.having(stream, b"origin", entry(start))]
        assert ends == sorted(ends)


def test_a_node_without_the_field_is_not_decoded() -> None:
    store = stored(nodes=20)
    decoded = []

    class Noted(Decoded):
        def __init__(self, data: bytes) -> None:
            decoded.append(data)
            super().__init__(data)

    store.raw(b"XADD", b"s", b"900-1", b"origin", b"x")
    for _ in range(30):
        store.raw(b"XADD", b"s", b"*", b"f", b"x")
    with patch.object(block, "Decoded", Noted):
        assert [job for job, _ in found(store.stream, 0)] == [entry(900)]
    assert len(decoded) == 1
