"""Frozen streams: a copy of one stream at a freeze, the rows written from it, and loading it back.

    STREAM row    msgpack [length, last ID, max deleted ID, entries added, removed_max, next group, nodes, tail,
                  idmp, groups]
                      nodes     [head, ID of its first slot, stop, live nodes, upper bound of their live IDs]
                      tail      [sealed bytes, deleted slots, whether its size bound is void], or nil
                      idmp      the value of Idmp.pack, or nil
                      groups    [[number, name], ...]

`nodes` describes the nodes stored in pages, with the ordinals `head` to `stop` - 1. IDs are 16 bytes, big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import msgpack

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.fast_path import fast_path
from tidelog.engine.groups.frozen_pending import Given, Handed
from tidelog.engine.groups.group import LostGroup, load_group
from tidelog.engine.groups.group_row import FrozenGroup
from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.engine.rowkeys import (
    REST,
    Operation,
    chunk_prefix,
    data_prefix,
    data_row,
    group_row,
    page_first,
    page_prefix,
    page_row,
    stream_row,
)
from tidelog.engine.streams.block import Block, Decoded, EntryRow, encode
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.pages import (
    ID_BYTES,
    PAGE_BYTES_MAX,
    PAGE_NODES,
    ColdPages,
    Mark,
    Marks,
    Page,
    mask_bytes,
    unpack_page,
)
from tidelog.engine.streams.stored import unpack_stream
from tidelog.engine.streams.stream import LOADED, NEVER_HANDED, NO_CUT, Stream

# A last page with at most this many nodes and bytes is rewritten together with the new nodes.
_SMALL_NODES: Final = PAGE_NODES // 2
_PAGES_TOGETHER: Final = 512  # PAGE rows put in one run
_SMALL_BYTES: Final = PAGE_BYTES_MAX // 2


ROW_BYTES: Final = len(stream_row(0))  # of a STREAM row's key
# a tail of up to this many entries is packed under the lock, when it is copied
SMALL_TAIL: Final = 128
_NO_ID: Final = bytes(ID_BYTES)
_deleted = attrgetter("deleted")

_Node = tuple[int, int, int, int, bytes]  # first ID, last ID, slots, deleted slots, block

# All threads share one packer. This is safe, because with autoreset pack() keeps no state between calls and never
# releases the interpreter lock.
_pack = msgpack.Packer(autoreset=True).pack

# Input of `take_back` after a failed checkpoint: the ordinal from which the checkpoint would have deleted stored nodes;
# and for each group its number and what was frozen of the group.
Undo = tuple[int, tuple[tuple[int, FrozenGroup | Given], ...]]


# A tuple for a stream whose only row is its STREAM row: its number, the first fields of the row, the ordinal of the
# tail, the tail's IDs, the tail's rows, and the row's other fields about the tail (`_tail`).
Plain = tuple[int, tuple[int, ...], int, list[int], list[EntryRow], "tuple[bytes, bool] | None"]


@fast_path(
    of="engine.streams.frozen_stream:FrozenStream",
    held_by="tests/engine/test_fast_paths.py::test_a_plain_copy_gives_the_rows_of_a_frozen_stream",
)
def copy_plain(stream: Stream, generation: int, committed: int) -> Plain | None:
    """[lock] Copy a stream that has, and needs, only its STREAM row; None for any other stream. O(tail).

    The copy takes 40 percent of the time of a FrozenStream, and nearly all streams of a store of many are plain.
    """
    if (
        stream.next_group != 1
        or stream.groups
        or len(stream.blocks) != stream.head
        or stream.cold is not None
        or stream.idmp is not None
        or stream.cut != NO_CUT
        or len(stream.tail_ids) > SMALL_TAIL
    ):
        return None
    stream.settle(committed)
    if stream.stored_stop:
        return None
    stream.handed_gen = generation
    facts = (
        *(stream.length, stream.last_id, stream.max_deleted_id, stream.entries_added),
        *(stream.removed_max, stream.next_group),
    )
    ids, rows = stream.tail_ids[:], stream.tail_rows[:]
    return stream.number, facts, stream.first_ordinal, ids, rows, _tail(stream)


def pack_plain(plain: Plain) -> bytes:
    """The key of its STREAM row, followed by the payload."""
    number, (length, last_id, deleted_id, added, removed, group), at, ids, rows, said = plain
    tail = None if said is None else (encode(ids, rows), *said)
    facts = (length, _id(last_id), _id(deleted_id), added, _id(removed), group)
    row: bytes = _pack((*facts, (at, _NO_ID, at, 0, _NO_ID), tail, None, ()))
    return stream_row(number) + row


def _facts(stream: Stream) -> tuple[Any, ...]:
    """The first fields of the STREAM row."""
    return (
        *(stream.length, _id(stream.last_id), _id(stream.max_deleted_id), stream.entries_added),
        *(_id(stream.removed_max), stream.next_group),
    )


def _tail(stream: Stream) -> tuple[bytes, bool] | None:
    """The `tail` field of the STREAM row without the sealed bytes; None if there is no tail."""
    if not stream.tail_ids:
        return None
    return mask_bytes(stream.tail_deleted), not stream.tail_until


class FrozenStream:
    """The part of a stream that a checkpoint has to write. Made under the lock; immutable afterwards.

    undo   what `take_back` restores if that checkpoint fails, or None
    """

    __slots__ = (
        *("number", "undo", "_new", "_names", "_groups", "_group_rows"),
        *("_facts", "_nodes", "_tail", "_tail_entries", "_idmp"),
        *("_start", "_blocks", "_firsts", "_deleted", "_marks", "_kept"),
    )

    def __init__(self, stream: Stream, generation: int, committed: int) -> None:
        """[lock] O(tail + new nodes + chunks of pending entries)."""
        stream.settle(committed)
        self.number = stream.number
        self._new = stream.handed_gen == NEVER_HANDED
        self._facts = _facts(stream)
        self._idmp = stream.idmp.freeze() if stream.idmp is not None else None
        self._tail = _tail(stream)
        self._tail_entries: bytes | tuple[list[int], list[EntryRow]] = b""
        if len(stream.tail_ids) > SMALL_TAIL:
            self._tail_entries = stream.tail_ids[:], stream.tail_rows[:]
        elif stream.tail_ids:
            self._tail_entries = encode(stream.tail_ids, stream.tail_rows)

        cold, head = stream.cold, stream.head
        first, head_id, nodes_last = stream.first_ordinal, 0, 0
        if cold is not None:
            first, head_id, nodes_last = cold.head, cold.head_id, cold.last_id
        elif head < len(stream.firsts):
            head_id = stream.firsts[head]
        start = self._start = max(stream.stored_stop, stream.first_ordinal)
        at = start - stream.first_ordinal + head  # index of the first new node
        self._blocks: Sequence[Block | None] = ()
        self._firsts: Sequence[int] = ()
        self._deleted: Sequence[int] = ()
        if at < len(stream.blocks):
            blocks = self._blocks = stream.blocks[at:]
            self._firsts = stream.firsts[at:]
            if stream.holes:
                self._deleted = [block.deleted if block is not None else 0 for block in blocks]
            else:
                self._deleted = list(map(_deleted, blocks))
        stop = start + len(self._blocks)
        last = next((block for block in reversed(stream.blocks) if block is not None), None)
        if last is not None:
            nodes_last = max(nodes_last, last.last)
        live = stream.nodes() - bool(stream.tail_ids)
        self._nodes = (first, _id(head_id), stop, live, _id(nodes_last))
        if stream.marks is None and self._blocks:
            stream.marks = Marks()
        self._marks = stream.marks.hand() if stream.marks is not None else {}
        self._kept = stream.stored_stop  # stored nodes from this ordinal on are deleted

        self._names: tuple[tuple[int, bytes], ...] = ()
        self._groups: Sequence[FrozenGroup] = ()
        self._group_rows: Sequence[bytes | None] = ()
        given = self._freeze_groups(stream) if stream.groups else ()
        self.undo: Undo | None = None
        if given or stream.cut != NO_CUT:
            self.undo = stream.cut, given
        stream.cut = NO_CUT
        stream.handed_gen = generation
        stream.handed_stop = stop

    def _freeze_groups(self, stream: Stream) -> tuple[tuple[int, FrozenGroup | Given], ...]:
        """Freeze the groups and pack the small ones. Return the groups' part of `Undo`."""
        given: list[tuple[int, FrozenGroup | Given]] = []
        groups: list[FrozenGroup] = []
        rows: list[bytes | None] = []  # key, payload (None: delete the row), key, ...
        for group in stream.groups.values():
            if group.lost:  # keep its rows as they are
                continue
            frozen = group.freeze()
            if not frozen.pending.is_small():
                groups.append(frozen)
                given.append((group.number, frozen))
                continue
            before = len(rows)
            for operation in frozen.rows(self.number):
                if operation[0] != "rest":
                    rows += operation[1], operation[2] if operation[0] == "put" else None
            if len(rows) > before:
                given.append((group.number, frozen.pending.given()))
        self._names = tuple([(group.number, group.name) for group in stream.groups.values()])
        self._groups = groups or ()
        self._group_rows = tuple(rows)
        return tuple(given)

    # --- rows

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """The operations on the stream's rows. `read` is the checkpoint being updated. May raise CorruptBlock."""
        number = self.number
        before = None if self._new else read.get(stream_row(number))
        if before is not None:
            stay = {group_number for group_number, _ in self._names}
            for group_number, _ in msgpack.unpackb(before)[-1]:
                if group_number not in stay:
                    yield "delete", group_row(number, group_number)
                    yield "delete_prefix", chunk_prefix(number, group_number)
        yield from self._pages(read)
        for group in self._groups:
            yield from group.rows(number)
        packed = iter(self._group_rows)
        for key, payload in zip(packed, packed):
            assert key is not None
            if payload is None:
                yield "delete", key
            else:
                yield "put", key, payload
        yield "put", stream_row(number), self._pack()

    def _pages(self, read: ColdStore) -> Iterator[Operation]:
        number = self.number
        head, head_id = self._nodes[:2]
        small: list[_Node] = []
        if head < self._kept:
            pages = _StoredPages(read, number)
            yield from pages.cut_end(self._kept)
            yield from pages.cut_head(head, _number(head_id))
            marks = {at: mark for at, mark in self._marks.items() if head <= at < self._kept}
            yield from pages.mark(marks)
            small = pages.take_small(self._start) if self._blocks else []
            yield from pages.changes()
        elif not self._new:
            yield "delete_prefix", page_prefix(number)
            yield "delete_prefix", data_prefix(number)
        ordinal = self._start - len(small)
        nodes: list[_Node] = []
        size = 0
        # Collect the PAGE rows and put many of them in one run. If each followed its DATA row, the PAGE rows would lie
        # between the DATA rows in the file, and a walk over nodes would make the kernel read the DATA rows as well.
        later: list[Operation] = []
        for node in chain(small, self._new_nodes()):
            if nodes and (len(nodes) == PAGE_NODES or size + len(node[4]) > PAGE_BYTES_MAX):
                page, data = _page_rows(number, ordinal, nodes)
                yield data
                later.append(page)
                if len(later) == _PAGES_TOGETHER:
                    yield from later
                    later = []
                ordinal += len(nodes)
                nodes, size = [], 0
            nodes.append(node)
            size += len(node[4])
        if nodes:
            yield from reversed(_page_rows(number, ordinal, nodes))
        yield from later

    def _new_nodes(self) -> Iterator[_Node]:
        for first, block, deleted in zip(self._firsts, self._blocks, self._deleted):
            if block is None:
                yield first, first, 0, 0, b""
            else:
                yield first, block.last, block.count, deleted, block.data

    def _pack(self) -> bytes:
        tail: Any = self._tail
        if tail is not None:
            entries = self._tail_entries
            tail = (entries if isinstance(entries, bytes) else encode(*entries), *tail)
        idmp = self._idmp.pack() if self._idmp is not None else None
        packed: bytes = _pack((*self._facts, self._nodes, tail, idmp, self._names))
        return packed


def _page_rows(number: int, ordinal: int, nodes: list[_Node]) -> tuple[Operation, Operation]:
    """The puts of a page's PAGE row and DATA row."""
    firsts, lasts, counts, masks, parts = map(list, zip(*nodes))
    page = Page(ordinal, firsts, lasts, counts, list(map(len, parts)), masks)
    return (
        ("put", page_row(number, page.first), page.pack()),
        ("put", data_row(number, page.first), b"".join(parts)),
    )


def take_back(stream: Stream, committed: int, undo: Undo | None) -> None:
    """[lock] Undo the handing of a stream to a checkpoint that failed, so that the next one writes it again.

    committed: the newest generation that a checkpoint holds.
    """
    if stream.marks is not None:
        stream.marks.take_back()
        stream.marks.cut(stream.stored_stop)
    stream.handed_stop = stream.stored_stop
    stream.handed_gen = committed
    if undo is not None:
        cut, given = undo
        stream.cut = min(stream.cut, cut)
        groups = {group.number: group for group in stream.groups.values()}
        for number, handed in given:
            group = groups.get(number)
            if group is not None:
                if isinstance(handed, tuple):
                    handed = FrozenGroup(number, (group.name,), Handed(*handed), True)
                group.thaw(handed)


class _StoredPages:
    """The pages of a stream in a checkpoint, and their changes. All reads happen before `changes` yields the first one.

    `cut_end`, `cut_head` and `mark` yield a REST before each page they read, since there may be thousands.
    """

    def __init__(self, read: ColdStore, number: int) -> None:
        self._read = read
        self._number = number
        self._changed: dict[int, Page] = {}  # by the first ID
        self._data: dict[int, bytes] = {}
        self._gone: list[int] = []
        self._last: Page | None = None
        self._first: int | None = None  # first ID of the page with the head

    def _page(self, row: tuple[bytes, bytes]) -> Page:
        first = page_first(row[0])
        page = self._changed.get(first)
        if page is not None:
            return page
        try:
            return unpack_page(first, row[1])
        except Exception as error:
            raise CorruptBlock(
                f"stream {self._number}: the page row at ID {first >> 64}-{first & SEQ_MAX} is unreadable: {error}"
            ) from error

    def _at(self, entry_id: int) -> Page | None:
        """The last page whose first ID is at most `entry_id`, or None. Raises CorruptBlock."""
        row = self._read.before(page_row(self._number, entry_id), page_prefix(self._number))
        return None if row is None else self._page(row)

    def _data_of(self, page: Page) -> bytes:
        data = self._read.get(data_row(self._number, page.first))
        if data is None or len(data) < sum(page.lengths):
            raise CorruptBlock(
                f"stream {self._number}, blocks {page.ordinal} to {page.stop - 1}: "
                "the data of the blocks is missing or incomplete"
            )
        return data

    def cut_end(self, stop: int) -> Iterator[Operation]:
        """Delete the nodes from ordinal `stop` on."""
        page = self._at(MAX)
        while page is not None and page.ordinal >= stop:
            yield REST
            self._gone.append(page.first)
            page = self._at(page.first - 1)
        if page is not None and page.stop > stop:
            data = self._data_of(page)
            page.cut(stop - page.ordinal)
            self._changed[page.first] = page
            self._data[page.first] = data[: sum(page.lengths)]
        self._last = page

    def cut_head(self, head: int, head_id: int) -> Iterator[Operation]:
        """Delete the pages that lie wholly below ordinal `head`, without reading them: one may be damaged, and the trim
        that removed it did not read it either.
        """
        yield REST
        page = self._at(head_id)
        if page is not None and page.ordinal <= head < page.stop:
            self._first = page.first

    def mark(self, marks: dict[int, Mark]) -> Iterator[Operation]:
        """Set the masks of deleted slots. `marks` is by ordinal. Raises CorruptBlock."""
        page: Page | None = None
        for ordinal in sorted(marks):
            entry_id, deleted = marks[ordinal]
            if page is None or ordinal >= page.stop:
                yield REST
                page = self._at(entry_id)
                while page is not None and page.ordinal > ordinal:
                    page = self._at(page.first - 1)
                if page is None or ordinal >= page.stop:
                    raise CorruptBlock(
                        f"stream {self._number}, block {ordinal}: its page is missing"
                    )
                self._changed[page.first] = page
            page.masks[ordinal - page.ordinal] = deleted

    def take_small(self, stop: int) -> list[_Node]:
        """Delete the last page and return its nodes if it is small and ends at ordinal `stop`; else []."""
        page = self._last
        if page is None or page.stop != stop:
            return []
        page = self._changed.get(page.first, page)
        size = sum(page.lengths)
        if len(page.counts) > _SMALL_NODES or size > _SMALL_BYTES:
            return []
        data = self._data.get(page.first) or self._data_of(page)
        ends = list(accumulate(page.lengths))
        parts = [data[end - length : end] for end, length in zip(ends, page.lengths)]
        self._gone.append(page.first)
        self._changed.pop(page.first, None)
        return list(zip(page.firsts, page.lasts, page.counts, page.masks, parts))

    def changes(self) -> Iterator[Operation]:
        """The operations on the rows."""
        number = self._number
        if self._first is not None:
            yield "delete_range", page_prefix(number), page_row(number, self._first)
            yield "delete_range", data_prefix(number), data_row(number, self._first)
        for first in self._gone:
            yield "delete", page_row(self._number, first)
            yield "delete", data_row(self._number, first)
        for first, page in self._changed.items():
            yield "put", page_row(self._number, first), page.pack()
            if first in self._data:
                yield "put", data_row(self._number, first), self._data[first]


def load_stream(cold: ColdStore, number: int) -> Stream:
    """Load a stream from its STREAM row, with its groups; one that cannot be read becomes a LostGroup.

    Raises CorruptBlock if the STREAM row is missing or damaged.
    """
    row = cold.get(stream_row(number))
    if row is None:
        raise CorruptBlock(f"stream {number}: its row is missing")
    try:
        stream, group_numbers = _unpack(cold, number, row)
    except CorruptBlock as damage:
        raise CorruptBlock(f"stream {number}, open node: {damage}") from damage
    except Exception as error:
        raise CorruptBlock(f"stream {number}: its row is unreadable: {error}") from error
    for group_number, name in group_numbers:
        try:
            stream.groups[name] = load_group(cold, number, group_number)
        except CorruptBlock as damage:
            stream.groups[name] = LostGroup(name, group_number, str(damage))
    return stream


def _unpack(cold: ColdStore, number: int, row: bytes) -> tuple[Stream, list[tuple[int, bytes]]]:
    stored = unpack_stream(number, row)
    stream = Stream(number)
    stream.length = stored.length
    stream.last_id = stored.last_id
    stream.max_deleted_id = stored.max_deleted_id
    stream.entries_added = stored.entries_added
    stream.removed_max = stored.removed_max
    stream.next_group = stored.next_group
    stream.first_ordinal = stream.handed_stop = stream.stored_stop = stored.stop
    stream.handed_gen = LOADED
    stream.marks = Marks()
    if stored.nodes:
        stream.cold = ColdPages(
            *(cold, number, stream.marks, stored.head, stored.head_id),
            *(stored.stop, stored.nodes, stored.nodes_last),
        )
    if stored.tail is not None:
        sealed, mask, void = stored.tail
        decoded = Decoded(sealed)
        stream.restore_tail(decoded.ids(), decoded.rows(), mask, void)
    if stored.idmp is not None:
        stream.idmp = Idmp.unpack(stored.idmp)
    return stream, stored.groups


def _id(entry_id: int) -> bytes:
    return entry_id.to_bytes(ID_BYTES, "big")


def _number(packed: bytes) -> int:
    return int.from_bytes(packed, "big")
