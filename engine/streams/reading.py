"""Reading: the entries of a stream between or after IDs. The stream's nodes are in engine.streams.stream."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tidelog.engine.fast_path import fast_path
from tidelog.engine.ids import MAX
from tidelog.engine.streams.block import Block, EntryRow
from tidelog.engine.streams.entries import NO_ENTRIES, BlockPart, Entries, Part, RowsPart
from tidelog.engine.streams.node import live_slots
from tidelog.engine.streams.stream import Stream


def between(
    stream: Stream, start: int, end: int, count: int | None = None, reverse: bool = False
) -> Entries:
    """Live entries with start <= ID <= end, at most `count` (None: all); descending if `reverse`.

    May raise CorruptBlock.
    """
    left = stream.length if count is None else min(count, stream.length)
    if left <= 0 or start > end:
        return NO_ENTRIES
    if start == end:
        return _one(stream, start)
    parts: list[Part] = []
    total = 0
    for block, first, deleted in _nodes_between(stream, start, end, reverse):
        part: Part
        if block is None:
            ids = stream.tail_ids
            low = bisect_left(ids, start) if first < start else 0
            high = bisect_right(ids, end) if ids[-1] > end else len(ids)
        else:
            low = block.decoded().slot_from(start) if first < start else 0
            high = block.decoded().slot_from(end + 1) if block.last > end else block.count
        if deleted:
            slots = live_slots(deleted, low, high)
            slots = slots[-left:] if reverse else slots[:left]
            size = len(slots)
            if block is None:
                part = RowsPart([ids[s] for s in slots], [stream.tail_rows[s] for s in slots])
            else:
                part = BlockPart(block, low, high, slots)
        else:
            low, high = _cut(low, high, left, reverse)
            size = high - low
            if block is None:
                part = RowsPart(ids[low:high], stream.tail_rows[low:high])
            else:
                part = BlockPart(block, low, high, None)
        if size > 0:
            parts.append(part)
            total += size
            left -= size
            if not left:
                break
    return Entries(parts, total, reverse) if total else NO_ENTRIES


def having(stream: Stream, field: bytes, start: int) -> Iterator[tuple[int, int, Entries]]:
    """Yield of each node with IDs >= `start`: its last ID, its bytes if it is sealed, and its entries from there on; no
    entries if certainly none has the field. Such a node is not decoded. The stream must not change meanwhile.

    May raise CorruptBlock.
    """
    for block, first, _ in _nodes_between(stream, start, MAX, False):
        if block is None:
            yield stream.tail_ids[-1], 0, between(stream, max(start, first), MAX)
        elif block.last < start:  # the first one may end before
            continue
        elif field in block.data:
            yield block.last, len(block.data), between(stream, max(start, first), block.last)
        else:
            yield block.last, len(block.data), NO_ENTRIES


@fast_path(
    of="engine.streams.reading:between",
    held_by="tests/engine/test_fast_paths.py::test_what_comes_after_an_id_and_what_is_still_there",
)
def after(stream: Stream, entry_id: int, count: int) -> Entries:
    """The first `count` live entries after an ID. Fast if one node holds all of them, as for most reads.

    May raise CorruptBlock.
    """
    tail_ids = stream.tail_ids
    if tail_ids and tail_ids[0] <= entry_id:
        low = bisect_right(tail_ids, entry_id)
        if not stream.tail_deleted >> low:
            stop = low + count
            ids = tail_ids[low:stop]
            if not ids:
                return NO_ENTRIES
            return Entries((RowsPart(ids, stream.tail_rows[low:stop]),), len(ids))
    else:
        blocks = stream.blocks
        at = bisect_right(stream.firsts, entry_id, stream.head) - 1
        if at < stream.head:
            if stream.cold is not None:
                found = stream.cold.stretch(entry_id, count)
                if found is None:
                    return between(stream, entry_id + 1, MAX, count)
                part = BlockPart(found[0], found[1], found[1] + count, None)
                return Entries((part,), count)
            at = stream.head
        block = blocks[at] if at < len(blocks) else None
        # The ID may lie between two nodes.
        if block is not None and block.last <= entry_id:
            at += 1
            block = blocks[at] if at < len(blocks) else None
        if block is not None:
            low = block.decoded().slot_from(entry_id + 1) if stream.firsts[at] <= entry_id else 0
            # Only the slots from `low` on must be live. Slots before `low` may be deleted: consumers that acknowledge
            # and delete entries leave such nodes.
            if low + count <= block.count and not block.deleted >> low:
                return Entries((BlockPart(block, low, low + count, None),), count)
    return between(stream, entry_id + 1, MAX, count)


def one_at_most_after(stream: Stream, entry_id: int) -> bool:
    """True if at most one entry comes after an ID. May be False for a reader that has not kept up, though at most
    one does: it looks only at the end of the tail."""
    ids = stream.tail_ids
    return len(ids) > 1 and ids[-2] <= entry_id


@fast_path(
    of="engine.streams.reading:between",
    held_by="tests/engine/test_fast_paths.py::test_what_comes_after_an_id_and_what_is_still_there",
)
def next_after(stream: Stream, entry_id: int) -> tuple[int, EntryRow] | None:
    """(ID, row) of the first live entry after an ID, or None. `after` for a reader that takes one at a time.

    May raise CorruptBlock.
    """
    ids = stream.tail_ids
    if len(ids) > 1 and ids[-2] <= entry_id < ids[-1] and not stream.tail_deleted:
        return ids[-1], stream.tail_rows[-1]  # a reader that keeps up reads the last entry
    if entry_id >= stream.last_id:
        return None
    blocks, head = stream.blocks, stream.head
    at = bisect_right(stream.firsts, entry_id, head) - 1
    if at >= head:
        block = blocks[at]
        if block is None or block.last <= entry_id:  # the ID lies between two nodes
            at += 1
    elif stream.cold is None or stream.tail_ids and stream.tail_ids[0] <= entry_id:
        at = head
    else:
        return _next_of_cold(stream, entry_id)
    if at == len(blocks):
        ids, rows, deleted = stream.tail_ids, stream.tail_rows, stream.tail_deleted
    else:
        block = blocks[at]
        if block is None:
            return _first_from(stream, entry_id + 1)
        ids, rows = block.listed()
        deleted = block.deleted
    slot = bisect_right(ids, entry_id)
    if deleted:
        if deleted == (1 << slot) - 1:
            # Every slot before the next entry is deleted, as in a queue. So in the head node the next entry is the
            # first live one.
            if at == head and stream.cold is None:
                stream.first_known = ids[slot]
        elif deleted >> slot:
            return _first_from(stream, entry_id + 1)
    return (ids[slot], rows[slot]) if slot < len(ids) else None


def _one(stream: Stream, entry_id: int) -> Entries:
    """`between` of one ID."""
    found = stream.slot_of(entry_id)
    if found is None:
        return NO_ENTRIES
    block, slot = found
    if block is None:
        return Entries((RowsPart([entry_id], [stream.tail_rows[slot]]),), 1)
    return Entries((BlockPart(block, slot, slot + 1, None),), 1)


def _next_of_cold(stream: Stream, entry_id: int) -> tuple[int, EntryRow] | None:
    """`next_after` where the next entry is cold."""
    assert stream.cold is not None
    found = stream.cold.stretch(entry_id, 1)
    if found is None:
        return _first_from(stream, entry_id + 1)
    block, slot = found
    ids, rows = block.listed()
    return ids[slot], rows[slot]


def _first_from(stream: Stream, start: int) -> tuple[int, EntryRow] | None:
    """The first live entry with ID >= `start`, by `between`."""
    return next(iter(between(stream, start, MAX, 1)), None)  # type: ignore[return-value]


def _nodes_between(
    stream: Stream, start: int, end: int, reverse: bool
) -> Iterator[tuple[Block | None, int, int]]:
    """Yield (block, first slot's ID, deleted slots) of the nodes that may hold start..end. The tail: block None."""
    blocks, firsts, tail_ids, cold = stream.blocks, stream.firsts, stream.tail_ids, stream.cold
    low = bisect_right(firsts, start, stream.head) - 1
    if low < stream.head:
        low = stream.head
    else:
        cold = None
    stop = bisect_right(firsts, end, stream.head)
    with_tail = bool(tail_ids) and tail_ids[0] <= end
    if with_tail and tail_ids[0] <= start:
        low, stop, cold = 0, 0, None
    span = range(low, stop)
    if reverse:
        if with_tail:
            yield None, tail_ids[0], stream.tail_deleted
        for at in reversed(span):
            block = blocks[at]
            if block is not None:
                yield block, firsts[at], block.deleted
        if cold is not None:
            for page, at, deleted in cold.back(start, end):
                yield cold.block(page, at), page.firsts[at], deleted
    else:
        if cold is not None:
            for page, at, deleted in cold.between(start, end):
                yield cold.block(page, at), page.firsts[at], deleted
        for at in span:
            block = blocks[at]
            if block is not None:
                yield block, firsts[at], block.deleted
        if with_tail:
            yield None, tail_ids[0], stream.tail_deleted


def _cut(low: int, high: int, left: int, reverse: bool) -> tuple[int, int]:
    """The first `left` of the slots low..high-1, the last ones if `reverse`."""
    if high - low <= left:
        return low, high
    return (high - left, high) if reverse else (low, low + left)
