"""Pages of a stream: what is read for what, what damage spoils and what it leaves, which rows stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.streams.cold import (
    NODES,
    SLOTS,
    Store,
    entry,
    lose_page,
    scramble_page,
    spoil_page,
    stored,
)

from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX
from tidelog.engine.keys.freeze import freeze, load_state, settle
from tidelog.engine.rowkeys import DATA, PAGE, data_row, page_row, stream_row
from tidelog.engine.streams import pages, reading
from tidelog.engine.streams.frozen_stream import load_stream
from tidelog.engine.streams.stream import Stream


def test_sealed_nodes_lie_in_pages_of_sixteen() -> None:
    store = stored()
    # The last node is open, so five pages: four of 16 nodes and one of 15.
    assert store.pages() == [0, 160, 320, 480, 640]
    assert store.stream.cold is not None and store.stream.cold.nodes == NODES - 1
    assert store.stream.blocks == []
    store.stream.check()
    per_entry = sum(len(key) + len(row) for key, row in store.rows.all().items()) / (NODES * SLOTS)
    assert per_entry < 25


def test_the_first_entry_in_memory_is_not_the_first_of_all() -> None:
    store = stored(3)
    stream = store.stream
    assert stream.head == len(stream.blocks)
    store.raw(b"XDEL", b"s", b"20-1")  # the first of the open node
    assert reading.next_after(stream, entry(20)) == (entry(21), (b"f", b"value 21"))
    assert stream.first_id() == entry(0)
    stream.check()


def test_a_point_read_reads_one_page() -> None:
    store = stored()
    pages.forget_pages()
    store.rows.reads = store.rows.data_read = 0
    assert store.stream.get(entry(333)) == (b"f", b"value 333")
    assert (store.rows.reads, store.rows.data_read) == (2, 1)
    assert store.stream.get(entry(334)) == (b"f", b"value 334")  # the same page, not read again
    assert (store.rows.reads, store.rows.data_read) == (2, 1)


def test_a_trim_reads_no_entries() -> None:
    store = stored()
    store.rows.data_read = 0
    assert store("XTRIM s MAXLEN 405") == 395
    assert store.rows.data_read == 0
    assert store("XLEN s") == 405
    assert store("XRANGE s - + COUNT 1") == [["395-1", ["f", "value 395"]]]
    store.stream.check()


def test_a_stream_that_loses_all_of_its_head_reads_nothing() -> None:
    store = stored()
    store.rows.reads = 0
    store.stream.trim(10, NODES - 1, 0, ())
    assert store.rows.reads == 0
    assert store.stream.cold is None
    store.stream.check()


def test_a_view_holds_its_bytes() -> None:
    store = stored()
    view = reading.between(store.stream, entry(100), entry(500))
    store.rows.delete_prefix(DATA)
    store.rows.delete_prefix(PAGE)
    pages.forget_pages()
    assert view.ids() == [entry(number) for number in range(100, 501)]
    assert [row for _, row in view][7] == (b"f", b"value 107")


def test_pages_below_the_head_go_with_the_next_commit() -> None:
    store = stored()
    store("XTRIM s MINID 400-0")
    store.commit()
    assert store.pages() == [320, 480, 640]
    assert store.of_kind(DATA) == 3
    store("XTRIM s MAXLEN 1")
    store.commit()
    assert store.pages() == []
    assert store.of_kind(DATA) == 0
    store("DEL s")
    frozen = freeze(store.state)
    while frozen.take_some(1):
        pass
    store.rows.write(list(frozen.rows(store.rows)))
    settle(store.state, frozen)
    assert store.rows.all() == {}


def test_a_deletion_changes_a_page_row_and_no_data() -> None:
    store = stored()
    before = store.rows.all()
    store("XDEL s 333-1 334-1")
    assert store.stream.get(entry(333)) is None
    store.commit()
    after = store.rows.all()
    changed = [key for key in after if after[key] != before.get(key)]
    number = store.stream.number
    assert sorted(changed) == sorted([page_row(number, entry(320)), stream_row(number)])
    assert load_stream(store.rows, number).get(entry(333)) is None
    assert load_stream(store.rows, number).get(entry(335)) is not None


def test_a_small_last_page_grows() -> None:
    store = stored(3)
    for round in range(1, 8):
        for number in range(30 * round, 30 * round + 30):
            store.add(number)
        store.commit()
        store.stream.check()
    nodes = [load_stream(store.rows, store.stream.number).cold, store.stream.cold]
    assert nodes[0] is not None and nodes[1] is not None
    assert nodes[0].nodes == nodes[1].nodes == 23
    assert len(store.pages()) <= 3


def test_a_checkpoint_reads_and_writes_no_more_rows_where_more_is_stored() -> None:
    work = []
    for nodes in (NODES, 10 * NODES):
        store = stored(nodes)
        for number in range(300):
            store.add(nodes * SLOTS + number)
        frozen = freeze(store.state)
        while frozen.take_some(1):
            pass
        store.rows.reads = 0
        done = [operation[0] for operation in frozen.rows(store.rows)]
        work.append((done, store.rows.reads))
    assert work[0] == work[1]


def test_an_entry_larger_than_a_page_has_one_of_its_own() -> None:
    store = stored(2)
    store.raw(b"XADD", b"s", b"100-1", b"f", b"x" * 100_000)
    store.raw(b"XADD", b"s", b"101-1", b"f", b"x")
    store.commit()
    row = store.stream.get(entry(100))
    assert row is not None and len(row[1]) == 100_000


def test_a_node_is_opened_again_and_its_ordinal_used_again() -> None:
    store = stored(33)
    last = range(310, 330)
    store.raw(b"XDEL", b"s", *[b"%d-1" % number for number in last])
    store.ctx.settings.stream_node_max_entries = 12
    cold = store.stream.cold
    assert cold is not None and cold.stop == 31
    for number in range(330, 350):
        store.add(number)
    assert cold.stop == 30
    store.stream.check()
    store.commit()
    assert digest(load_state(store.rows, store.state.tables_meta())) == digest(store.state)
    assert store.stream.length == 330


@pytest.mark.parametrize("cap", [pages.CACHED_BYTES, 40_000, 100])
def test_the_cache_is_bounded(cap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CACHED_BYTES", cap)
    store = Store(2)
    for number in range(20, 20_000):
        store.add(number)
    store.commit()
    pages.forget_pages()
    for number in [*range(0, 20_000, 100), *range(19_999, 0, -77)]:
        assert store.stream.get(entry(number)) is not None
        held = [
            sum(page.lengths) if page.blocks is not None else 0 for page in pages._cache.values()
        ]
        assert 0 < len(held) <= pages.CACHED_PAGES
        assert sum(held) <= cap or len(held) == 1
        assert sum(held) == pages._held


@pytest.mark.parametrize("count", [1, 3, 10, 25])
def test_an_id_and_what_comes_after_it_are_told_as_if_they_were_in_memory(count: int) -> None:
    store, plain = Store(40), Store(40)
    ids = [f"{number}-1" for number in [*range(40, 50), 73, 74, 77, *range(155, 165), 211, 219]]
    for engine in (store, plain):
        engine("XDEL s " + " ".join(ids[:9]))
    store.commit()
    for engine in (store, plain):
        engine("XDEL s " + " ".join(ids[9:]))
        engine("XTRIM s MAXLEN 365")
    assert plain.stream.cold is None
    for start in [*range(400 << 1), 300, 10, 200]:
        after = (start >> 1) << 64 | start & 1
        expected = list(reading.after(plain.stream, after, count))
        assert list(reading.after(store.stream, after, count)) == expected
        for engine in (store, plain):
            assert reading.next_after(engine.stream, after) == (expected[0] if expected else None)
        assert reading.between(store.stream, after, after) == reading.between(
            plain.stream, after, after
        )
    store.stream.check()


# --- damage


def readable(store: Store, low: int, high: int) -> None:
    """Everything is read, but what lies from entry `low` up to `high`."""
    stream = store.stream
    pages.forget_pages()
    assert reading.between(stream, 0, entry(low - 1)).ids() == [
        entry(number) for number in range(low)
    ]
    later = [entry(number) for number in range(high, NODES * SLOTS)]
    assert reading.between(stream, entry(high), MAX).ids() == later
    assert reading.between(stream, entry(high), MAX, reverse=True).ids() == later[::-1]
    for number in (0, low - 1, high, NODES * SLOTS - 1):
        assert stream.get(entry(number)) == (b"f", b"value %d" % number)
    assert store("XLEN s") == NODES * SLOTS
    store.add(10_000)
    assert stream.last_live_id() == entry(10_000)


def reads(stream: Stream) -> list[Callable[[], Any]]:
    """Ways into the third page."""
    return [
        lambda: list(reading.between(stream, 0, MAX)),
        lambda: list(reading.between(stream, 0, MAX, reverse=True)),
        lambda: stream.get(entry(400)),
        lambda: list(reading.between(stream, entry(400), entry(401))),
        lambda: list(reading.between(stream, entry(400), entry(400))),
        lambda: [node.ids() for node in stream.walk()],
    ]


def spoil_data(store: Store) -> None:
    store.rows.bad.add(data_row(store.stream.number, entry(320)))


def lose_data(store: Store) -> None:
    store.rows.put(data_row(store.stream.number, entry(320)), None)


def shorten_data(store: Store) -> None:
    name = data_row(store.stream.number, entry(320))
    store.rows.put(name, store.rows.all()[name][:-1])


@pytest.mark.parametrize(
    "damage", [spoil_page, lose_page, scramble_page, spoil_data, lose_data, shorten_data]
)
def test_damage_is_named_and_all_else_is_read(damage: Callable[[Store], None]) -> None:
    store = stored()
    stream = store.stream
    damage(store)
    for read in reads(stream):
        pages.forget_pages()
        with pytest.raises(
            CorruptBlock, match=rf"^stream {stream.number}, block.* \(IDs .*-.* to .*-.*\): "
        ):
            read()
    readable(store, 320, 480)


def test_what_is_missing_between_two_pages_is_named_exactly() -> None:
    store = stored()
    lose_page(store)
    pages.forget_pages()
    span = r"blocks 32 to 47 \(IDs 319-2 to 480-0\): they are missing"
    with pytest.raises(CorruptBlock, match=span):
        reading.between(store.stream, 0, MAX)
    pages.forget_pages()
    with pytest.raises(CorruptBlock, match=span):
        store.stream.get(entry(400))


def test_the_first_and_the_last_page_are_missed_too() -> None:
    for first in (0, 640):
        store = stored()
        store.rows.put(page_row(store.stream.number, entry(first)), None)
        for read in (
            lambda: store.stream.get(entry(first + 5)),
            lambda: reading.between(store.stream, 0, MAX),
        ):
            pages.forget_pages()
            with pytest.raises(CorruptBlock, match="missing"):
                read()


def test_one_damaged_block_spoils_that_block_alone() -> None:
    store = stored()
    stream = store.stream
    name = data_row(stream.number, entry(320))
    data = bytearray(store.rows.all()[name])
    data[10] ^= 1
    store.rows.put(name, bytes(data))
    with pytest.raises(
        CorruptBlock, match=rf"stream {stream.number}, block 32 \(IDs 320-1 to 329-1\): .*checksum"
    ):
        list(reading.between(stream, 0, MAX))
    readable(store, 320, 330)


def test_a_stream_without_its_row_is_named() -> None:
    store = stored()
    number = store.stream.number
    whole = store.rows.all()[stream_row(number)]
    for row in (None, b"", whole[:-3]):
        store.rows.put(stream_row(number), row)
        with pytest.raises(CorruptBlock, match=f"stream {number}: its row is"):
            load_stream(store.rows, number)
