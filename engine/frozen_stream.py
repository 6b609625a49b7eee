"""Frozen streams: one stream at a freeze, the rows it makes, and the way back.

    STREAM row    msgpack [length, last ID, max deleted ID, entries added, removed_max, next group, nodes, tail,
                  idmp, groups]
                      nodes     [head, ID of its first slot, stop, how many are live, no live entry has a greater ID]
                      tail      [sealed bytes, deleted slots, whether its bound is void], or nil
                      idmp      what Idmp.pack gives, or nil
                      groups    [[number, name], ...]

`nodes` are those that lie in pages, ordinals `head` up to `stop`. IDs are 16 bytes big-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final, cast

import msgpack

from tidelog.engine import group as groups
from tidelog.engine.block import Decoded, encode
from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.frozen_keys import Operation
from tidelog.engine.idmp import Idmp
from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.engine.nodes import NO_CUT
from tidelog.engine.pages import (
    ID_BYTES,
    PAGE_BYTES_MAX,
    PAGE_NODES,
    ColdPages,
    Mark,
    Marks,
    Page,
    unpack_page,
)
from tidelog.engine.rowkeys import (
    chunk_prefix,
    data_prefix,
    data_row,
    group_row,
    page_prefix,
    page_row,
    stream_row,
)
from tidelog.engine.stream import LOADED, Stream

_FIRST_AT: Final = 9  # of a PAGE row's key
_SMALL_NODES: Final = (
    PAGE_NODES // 2
)  # a last page of no more than these, and this many bytes, is written anew
_SMALL_BYTES: Final = PAGE_BYTES_MAX // 2


class FrozenStream:
    """What of a stream a checkpoint has to write. Made under the lock; nothing in it changes afterwards."""

    __slots__ = (
        *("number", "length", "last_id", "max_deleted_id", "entries_added", "removed_max"),
        *("next_group", "idmp", "groups"),
        *("tail_ids", "tail_rows", "tail_deleted", "tail_void"),
        *("head", "head_id", "nodes", "start", "stop", "blocks", "deleted", "firsts"),
        *("marks", "cut", "nodes_last", "_kept"),
    )

    def __init__(self, stream: Stream, generation: int, committed: int) -> None:
        """[lock] O(tail + nodes that are new + chunks of pending entries)."""
        stream.settle(committed)
        self.number = stream.number
        self.length = stream.length
        self.last_id = stream.last_id
        self.max_deleted_id = stream.max_deleted_id
        self.entries_added = stream.entries_added
        self.removed_max = stream.removed_max
        self.next_group = stream.next_group
        self.idmp = stream.idmp.freeze() if stream.idmp is not None else None
        self.groups = [(group, group.freeze()) for group in stream.groups.values()]
        self.tail_ids = stream.tail_ids[:]
        self.tail_rows = stream.tail_rows[:]
        self.tail_deleted = stream.tail_deleted
        self.tail_void = bool(self.tail_ids) and not stream.tail_until

        cold, head = stream.cold, stream.head
        self.head = cold.head if cold is not None else stream.first_ordinal
        self.head_id = 0
        if cold is not None:
            self.head_id = cold.head_id
        elif head < len(stream.firsts):
            self.head_id = stream.firsts[head]
        self.nodes = stream.nodes() - bool(self.tail_ids)
        self.nodes_last = cold.last_id if cold is not None else 0
        self.start = max(stream.stored_stop, stream.first_ordinal)  # nodes from here on are new
        at = self.start - stream.first_ordinal + head
        self.blocks = stream.blocks[at:]
        self.firsts = stream.firsts[at:]
        self.deleted = [block.deleted if block is not None else 0 for block in self.blocks]
        self.stop = self.start + len(self.blocks)
        last = next((block for block in reversed(stream.blocks) if block is not None), None)
        if last is not None:
            self.nodes_last = max(self.nodes_last, last.last)
        if stream.marks is None and self.blocks:
            stream.marks = Marks()
        self.marks = stream.marks.hand() if stream.marks is not None else {}
        self.cut = stream.cut

        self._kept = stream.stored_stop  # stored nodes from here on are to go
        stream.cut = NO_CUT
        stream.handed_gen = generation
        stream.handed_stop = self.stop

    def undoes(self) -> bool:
        """Whether `take_back` needs it."""
        return bool(self.groups) or self.cut != NO_CUT

    # --- rows

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """What becomes of the stream's rows. `read` is the checkpoint they go into. May raise CorruptBlock."""
        number = self.number
        before = read.get(stream_row(number))
        if before is not None:
            stay = {group.number for group, _ in self.groups}
            for group_number, _ in msgpack.unpackb(before)[-1]:
                if group_number not in stay:
                    yield "delete", group_row(number, group_number)
                    yield "delete_prefix", chunk_prefix(number, group_number)
        yield from self._pages(read)
        for _, group in self.groups:
            yield from cast("Iterator[Operation]", group.rows(number))
        yield "put", stream_row(number), self._pack()

    def _pages(self, read: ColdStore) -> Iterator[Operation]:
        number = self.number
        pages = _StoredPages(read, number)
        if self.head < self._kept:
            pages.cut_end(self._kept)
            pages.cut_head(self.head)
            pages.mark(
                {at: mark for at, mark in self.marks.items() if self.head <= at < self._kept}
            )
            nodes = pages.take_small(self.start) if self.blocks else []
            yield from pages.changes()
        else:
            yield "delete_prefix", page_prefix(number)
            yield "delete_prefix", data_prefix(number)
            nodes = []
        start = self.start - len(nodes)
        for first, block, deleted in zip(self.firsts, self.blocks, self.deleted):
            if block is None:
                nodes.append((first, first, 0, 0, b""))
            else:
                nodes.append((first, block.last, block.count, deleted, block.data))
        at = 0
        while at < len(nodes):
            size, stop = 0, at
            while stop < len(nodes) and stop - at < PAGE_NODES:
                size += len(nodes[stop][4])
                if size > PAGE_BYTES_MAX and stop > at:
                    break
                stop += 1
            firsts, lasts, counts, masks, parts = map(list, zip(*nodes[at:stop]))
            page = Page(start + at, firsts, lasts, counts, list(map(len, parts)), masks)
            yield "put", page_row(number, page.first), page.pack()
            yield "put", data_row(number, page.first), b"".join(parts)
            at = stop

    def _pack(self) -> bytes:
        tail = None
        if self.tail_ids:
            sealed = encode(self.tail_ids, self.tail_rows)
            tail = (sealed, _bits(self.tail_deleted), self.tail_void)
        nodes = (self.head, _id(self.head_id), self.stop, self.nodes, _id(self.nodes_last))
        packed: bytes = msgpack.packb(
            (
                *(self.length, _id(self.last_id), _id(self.max_deleted_id), self.entries_added),
                *(_id(self.removed_max), self.next_group, nodes, tail),
                self.idmp.pack() if self.idmp is not None else None,
                [(group.number, group.name) for group, _ in self.groups],
            )
        )
        return packed


def take_back(stream: Stream, committed: int, frozen: FrozenStream | None) -> None:
    """[lock] A stream was handed to a checkpoint that failed. `frozen`: what was handed, if it `undoes`.

    committed: the newest generation that a checkpoint holds.
    """
    if stream.marks is not None:
        stream.marks.take_back()
        stream.marks.cut(stream.stored_stop)
    stream.handed_stop = stream.stored_stop
    stream.handed_gen = committed
    if frozen is not None:
        stream.cut = min(stream.cut, frozen.cut)
        for group, handed in frozen.groups:
            group.thaw(handed)


_Node = tuple[int, int, int, int, bytes]  # first ID, last ID, slots, deleted slots, block


class _StoredPages:
    """The pages of a stream in a checkpoint, and what is to become of them: all is read before a change is told."""

    def __init__(self, read: ColdStore, number: int) -> None:
        self._read = read
        self._number = number
        self._changed: dict[int, Page] = {}  # by the first ID
        self._data: dict[int, bytes] = {}
        self._gone: list[int] = []
        self._last: Page | None = None

    def _page(self, row: tuple[bytes, bytes]) -> Page:
        first = int.from_bytes(row[0][_FIRST_AT:], "big")
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
        """The last page whose first ID is at most this one."""
        row = self._read.before(page_row(self._number, entry_id), page_prefix(self._number))
        return None if row is None else self._page(row)

    def _data_of(self, page: Page) -> bytes:
        data = self._read.get(data_row(self._number, page.first))
        if data is None or len(data) < sum(page.lengths):
            raise CorruptBlock(
                f"stream {self._number}, blocks {page.ordinal} to {page.stop - 1}: their data is missing, or not whole"
            )
        return data

    def cut_end(self, stop: int) -> None:
        """Let the nodes from ordinal `stop` on go."""
        page = self._at(MAX)
        while page is not None and page.ordinal >= stop:
            self._gone.append(page.first)
            page = self._at(page.first - 1)
        if page is not None and page.stop > stop:
            data = self._data_of(page)
            page.cut(stop - page.ordinal)
            self._changed[page.first] = page
            self._data[page.first] = data[: sum(page.lengths)]
        self._last = page

    def cut_head(self, head: int) -> None:
        """Let the pages go that lie below ordinal `head` as a whole."""
        prefix = page_prefix(self._number)
        row = self._read.after(prefix, prefix)
        while row is not None:
            page = self._page(row)
            if page.stop > head or page.ordinal > head:
                break
            self._gone.append(page.first)
            row = self._read.after(page_row(self._number, page.first + 1), prefix)

    def mark(self, marks: dict[int, Mark]) -> None:
        """Note what slots are deleted."""
        page: Page | None = None
        for ordinal in sorted(marks):
            entry_id, deleted = marks[ordinal]
            if page is None or ordinal >= page.stop:
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
        """The nodes of the last page, which ends at ordinal `stop`, if that is a small one; it goes."""
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
        """What becomes of the rows."""
        for first in self._gone:
            yield "delete", page_row(self._number, first)
            yield "delete", data_row(self._number, first)
        for first, page in self._changed.items():
            yield "put", page_row(self._number, first), page.pack()
            if first in self._data:
                yield "put", data_row(self._number, first), self._data[first]


def unpack_stream(cold: ColdStore, number: int) -> Stream:
    """A stream as its STREAM row has it, with its groups. Raises CorruptBlock."""
    row = cold.get(stream_row(number))
    if row is None:
        raise CorruptBlock(f"stream {number}: its row is missing")
    try:
        stream, group_numbers = _unpack(cold, number, row)
    except CorruptBlock as damage:
        raise CorruptBlock(f"stream {number}, its open node: {damage}") from damage
    except Exception as error:
        raise CorruptBlock(f"stream {number}: its row is unreadable: {error}") from error
    for group_number, name in group_numbers:
        stream.groups[name] = groups.load_group(cold, number, group_number)
    return stream


def _unpack(cold: ColdStore, number: int, row: bytes) -> tuple[Stream, list[tuple[int, bytes]]]:
    length, last_id, deleted_id, added, removed, next_group, nodes, tail, idmp, named = (
        msgpack.unpackb(row)
    )
    stream = Stream(number)
    stream.length = length
    stream.last_id = _number(last_id)
    stream.max_deleted_id = _number(deleted_id)
    stream.entries_added = added
    stream.removed_max = _number(removed)
    stream.next_group = next_group
    head, head_id, stop, live, nodes_last = nodes
    stream.first_ordinal = stream.handed_stop = stream.stored_stop = stop
    stream.handed_gen = LOADED
    stream.marks = Marks()
    if live:
        stream.cold = ColdPages(
            *(cold, number, stream.marks, head, _number(head_id), stop, live, _number(nodes_last))
        )
    if tail is not None:
        sealed, deleted, void = tail
        decoded = Decoded(sealed)
        mask = int.from_bytes(deleted, "little")
        stream.restore_tail(decoded.ids(), decoded.rows(), mask, void)
    if idmp is not None:
        stream.idmp = Idmp.unpack(idmp)
    return stream, named


def _id(entry_id: int) -> bytes:
    return entry_id.to_bytes(ID_BYTES, "big")


def _number(packed: bytes) -> int:
    return int.from_bytes(packed, "big")


def _bits(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")
