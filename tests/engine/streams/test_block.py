"""Sealed blocks: what goes in comes out, in one canonical form, and damage is noticed."""

from __future__ import annotations

from itertools import accumulate
from operator import is_
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine import idlist
from tidelog.engine.crc32c import crc32c
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX, SEQ_MAX, text
from tidelog.engine.streams import block as block_module
from tidelog.engine.streams.block import (
    CACHED_BLOCKS,
    CACHED_BYTES,
    CRC_BYTES,
    FEW_TEXTS,
    Block,
    Decoded,
    EntryRow,
    encode,
    encode_run,
    rows_of,
)

parts = st.one_of(st.binary(max_size=4), st.just(b"x" * 40), st.just(b"y" * 300))
pairs = st.tuples(parts, parts)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[int], list[EntryRow]]:
    """IDs of every form, rows of one shape or of several."""
    form = draw(st.sampled_from(["run", "zero", "dense", "any", "wide"]))
    count = draw(st.integers(1, 12))
    if form == "run":
        first = draw(st.integers(0, (1 << 100))) + 1
        ids = list(range(first, first + count))
    elif form == "zero":
        ids = sorted(
            ms << 64 for ms in draw(st.sets(st.integers(1, 1 << 41), min_size=1, max_size=12))
        )
    elif form == "dense":
        steps = draw(
            st.lists(st.sampled_from([1, 1, 1, 1, 2, 9, 1 << 64]), min_size=1, max_size=40)
        )
        ids = list(accumulate(steps, initial=(7 << 64) + 3))
    else:
        most = (1 << 42 << 64) if form == "any" else MAX
        ids = sorted(draw(st.sets(st.integers(1, most), min_size=1, max_size=12)))
    shape = draw(st.lists(parts, min_size=1, max_size=4))
    rows = []
    for _ in ids:
        own = draw(st.one_of(st.just(shape), st.lists(parts, min_size=1, max_size=3)))
        rows.append(tuple(part for name in own for part in (name, draw(parts))))
    return ids, rows


@given(nodes(), st.data())
def test_round_trip(node: tuple[list[int], list[EntryRow]], data: st.DataObject) -> None:
    ids, rows = node
    block = Block(encode(ids, rows), len(ids), ids[-1])
    decoded = block.decoded()
    low = data.draw(st.integers(0, len(ids)))
    high = data.draw(st.integers(low, len(ids)))
    assert decoded.ids() == ids
    assert decoded.rows() == rows == rows_of(block.data)
    assert decoded.rows(low, high) == rows[low:high]
    assert [decoded.id_at(slot) for slot in range(len(ids))] == ids
    assert decoded.texts() == [text(entry_id) for entry_id in ids]
    assert idlist.unpack(decoded.idlist(low, high)) == ids[low:high]
    assert decoded.pairs(low, high) == [
        (text(entry_id), dict(zip(row[::2], row[1::2])))
        for entry_id, row in zip(ids[low:high], rows[low:high])
    ]


@given(nodes(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_texts_of_some_slots(
    node: tuple[list[int], list[EntryRow]], parts: list[tuple[int, int]]
) -> None:
    ids, rows = node
    decoded = Decoded(encode(ids, rows))
    for part in parts:
        low, high = sorted(min(at, len(ids)) for at in part)
        assert decoded.texts(low, high) == [text(entry_id) for entry_id in ids[low:high]]


def test_texts_are_kept_for_who_comes_back() -> None:
    ids = list(range(1, 1 + 3 * FEW_TEXTS))
    decoded = Decoded(encode(ids, [(b"a", b"b")] * len(ids)))
    first = decoded.texts(0, FEW_TEXTS)
    assert not any(map(is_, first, decoded.texts(0, FEW_TEXTS)))  # that one made all
    assert all(map(is_, decoded.texts(), decoded.texts()))


@given(nodes(), st.integers(0, MAX))
def test_slots_are_found_by_id(node: tuple[list[int], list[EntryRow]], other: int) -> None:
    ids, rows = node
    decoded = Decoded(encode(ids, rows))
    for wanted in {*ids, other, *(entry_id + 1 for entry_id in ids)}:
        assert decoded.slot_from(wanted) == sum(entry_id < wanted for entry_id in ids)
        assert decoded.find(wanted) == (ids.index(wanted) if wanted in ids else -1)


@given(st.integers(0, SEQ_MAX - 20), st.lists(pairs, min_size=1, max_size=9))
def test_a_run_has_the_same_bytes_however_it_was_made(seq: int, values: list[Any]) -> None:
    rows = [(b"one", first, b"two", second) for first, second in values]
    first_id = 7 << 64 | seq
    flat = [part for pair in values for part in pair]
    run = encode_run(7, seq, len(rows), ("one", b"two"), flat)
    assert run == encode(range(first_id, first_id + len(rows)), rows)


def test_a_contiguous_range_over_two_milliseconds_is_no_run() -> None:
    ids = [(5 << 64) - 1, 5 << 64]
    assert Decoded(encode(ids, [(b"a", b"b")] * 2)).ids() == ids


def test_every_flipped_bit_is_noticed() -> None:
    data = encode([1, 2], [(b"a", b"b"), (b"a", b"c")])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBlock):
            Decoded(bytes(damaged))


def test_the_bytes_of_the_module_text() -> None:
    """Blocks lie on disk: their form may not change by accident."""
    ids = [(5 << 64) + 1, (6 << 64) + 9]
    same = encode(ids, [(b"f", b"a"), (b"f", b"b")])
    assert msgpack.unpackb(same[:-CRC_BYTES], raw=True) == [
        [5, 1, 2, [0, 1], [1, 9]],
        [b"f"],
        [b"a", b"b"],
    ]
    assert same[-CRC_BYTES:] == crc32c(same[:-CRC_BYTES]).to_bytes(4, "little")
    mixed = encode([5 << 64, 9 << 64], [(b"f", b"a"), (b"g", b"b", b"h", b"c")])
    assert msgpack.unpackb(mixed[:-CRC_BYTES], raw=True) == [
        [5, 0, 2, [0, 4]],
        [[b"f"], [b"g", b"h"]],
        [b"a", b"b", b"c"],
        [0, 1],
    ]


def test_the_cache_of_decoded_blocks_is_bounded_by_bytes() -> None:
    """The limits of a node may be off, so that a block has any size."""
    kept: list[Block] = []
    for mib in (1, 1, 1, 1, 1, 1, 9, 1, 1, 1, 9, 9):
        ids, rows = [len(kept) + 1], [(b"f", b"x" * (mib << 20))]
        kept += [Block(encode(ids, rows), 1, ids[0])]
        kept += [Block(encode([n], [(b"f", b"small")]), 1, n) for n in range(20)]
        for block in kept[-21:]:
            assert block.decoded() is block.decoded()
        sealed = [len(block.data) for block in list(block_module._cache)]
        assert len(sealed) <= CACHED_BLOCKS
        assert sum(sealed) <= max(2 * CACHED_BYTES, max(sealed) + CACHED_BYTES)
