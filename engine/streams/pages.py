"""Pages: the sealed nodes of a stream as a checkpoint holds them, and the cold nodes of a stream.

A page is up to PAGE_NODES consecutive nodes in two rows, so that a walk over nodes reads no entries:

    PAGE row    msgpack [ordinal, firsts, lasts, counts, lengths, masks]
                    ordinal   ordinal of the first node
                    firsts    ID of each node's first slot, 16 bytes big-endian; the row's key has the first of them
                    lasts     ID of each node's last slot
                    counts    slots of each node; 0 for a node that was dropped before it was stored
                    lengths   bytes of each node's block
                    masks     deleted slots of each node, little-endian; [] if no slot of the page is deleted
    DATA row    the blocks, one after the other

A stored block never changes. A deletion changes the node's mask; the stream's `engine.streams.marks` holds the new
mask until the next checkpoint writes it. Ordinals have no gaps, neither inside a page nor between pages, so a walk
detects a missing page.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Final

import msgpack

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX, text
from tidelog.engine.rowkeys import data_row, page_first, page_prefix, page_row
from tidelog.engine.streams.block import Block, Decoded, EntryRow
from tidelog.engine.streams.marks import Mark as Mark
from tidelog.engine.streams.marks import Marks as Marks
from tidelog.engine.streams.node import NO_SLOT, Node, highest_live, lowest_live

PAGE_NODES: Final = 16
PAGE_BYTES_MAX: Final = 60_000  # of blocks; a single node may be larger
ID_BYTES: Final = 16

_each_id = struct.Struct(">QQ").iter_unpack


def split_ids(packed: bytes) -> list[int]:
    """Decode IDs of 16 bytes each. Raises struct.error if the length is not a multiple of 16."""
    return [ms << 64 | seq for ms, seq in _each_id(packed)]


def join_ids(ids: Sequence[int]) -> bytes:
    """Encode IDs as 16 bytes each, big-endian."""
    return b"".join([entry_id.to_bytes(ID_BYTES, "big") for entry_id in ids])


def mask_bytes(mask: int) -> bytes:
    """Encode deleted slots for a PAGE row: little-endian, without trailing zero bytes."""
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


class Page:
    """One page, with the columns of its PAGE row.

    blocks    None until the DATA row is read; an element is None until `ColdPages.block` returns it
    data      the DATA row, until every block has been returned
    held      bytes of blocks that the cache counts for this page
    """

    __slots__ = (
        *("ordinal", "firsts", "lasts", "counts", "lengths", "masks"),
        *("blocks", "data", "held"),
    )

    def __init__(
        self,
        ordinal: int,
        firsts: list[int],
        lasts: list[int],
        counts: list[int],
        lengths: list[int],
        masks: list[int],
    ) -> None:
        self.ordinal = ordinal
        self.firsts = firsts
        self.lasts = lasts
        self.counts = counts
        self.lengths = lengths
        self.masks = masks
        self.blocks: list[StoredBlock | None] | None = None
        self.data = b""
        self.held = 0

    @property
    def first(self) -> int:
        """The ID in the keys of the page's rows."""
        return self.firsts[0]

    @property
    def stop(self) -> int:
        """The ordinal after the page's last node."""
        return self.ordinal + len(self.counts)

    def pack(self) -> bytes:
        """Encode the PAGE row."""
        masks: list[bytes] = []
        if any(self.masks):
            masks = [mask_bytes(mask) for mask in self.masks]
        packed: bytes = msgpack.packb(
            (
                *(self.ordinal, join_ids(self.firsts), join_ids(self.lasts)),
                *(self.counts, self.lengths, masks),
            )
        )
        return packed

    def cut(self, nodes: int) -> None:
        """Keep only the first `nodes` nodes."""
        for column in (self.firsts, self.lasts, self.counts, self.lengths, self.masks):
            del column[nodes:]
        self.blocks = None


def unpack_page(first: int, row: bytes) -> Page:
    """Decode a PAGE row. Raises ValueError, or any exception of msgpack or struct if the bytes are damaged."""
    ordinal, firsts, lasts, counts, lengths, masks = msgpack.unpackb(row)
    page = Page(
        ordinal,
        split_ids(firsts),
        split_ids(lasts),
        counts,
        lengths,
        [int.from_bytes(mask, "little") for mask in masks] or [0] * len(counts),
    )
    sizes = set(map(len, (page.firsts, page.lasts, counts, lengths, page.masks)))
    if len(sizes) > 1 or not counts or page.first != first:
        raise ValueError("the columns have different lengths")
    for slots, nbytes in zip(counts, lengths):
        if slots > _COUNT_MIN + _PER_BYTE_MAX * nbytes:
            raise ValueError(f"{nbytes} bytes cannot hold {slots} entries")
    return page


# An entry takes a byte or more, and compression makes a thousandth of it at best. A count beyond that is a lie, which
# must not become a list.
_COUNT_MIN: Final = 64
_PER_BYTE_MAX: Final = 2048


class StoredBlock(Block):
    """A sealed block of a page. Its errors name the stream, the block's ordinal and its IDs."""

    __slots__ = ("number", "ordinal", "first")

    def __init__(
        self, data: bytes, count: int, last: int, number: int, ordinal: int, first: int
    ) -> None:
        super().__init__(data, count, last)
        self.number = number
        self.ordinal = ordinal
        self.first = first

    def decoded(self) -> Decoded:
        """`Block.decoded`. Raises CorruptBlock that names the stream, the block and its IDs."""
        try:
            return super().decoded()
        except CorruptBlock as damage:
            raise CorruptBlock(
                f"stream {self.number}, block {self.ordinal} (IDs {_text(self.first)} to {_text(self.last)}):"
                f" {damage}"
            ) from damage


def _text(entry_id: int) -> str:
    return text(entry_id).decode()


# --- the cache

CACHED_PAGES: Final = 256
CACHED_BYTES: Final = 8 << 20  # of blocks

# LRU cache of pages, least recently used first. The keys are (serial of the ColdPages, first ID), so the cache refers
# to no store and keeps none open. All stores of a process share it, each under its own lock, so use single dict
# operations only. If two threads update `_held` at once, one update can be lost; `_remember` resets `_held` when the
# cache is almost empty.
_cache: dict[tuple[int, int], Page] = {}
_held = 0  # bytes of blocks in the cache
_serials = count()


def forget_pages() -> None:
    """Empty the cache. The caller is about to change rows."""
    global _held
    _cache.clear()
    _held = 0


def _remember(key: tuple[int, int], page: Page, held: int = 0) -> None:
    """Cache a page that was just read, or whose blocks (`held` bytes) were. Evicts old pages over the limits."""
    global _held
    known = _cache.pop(key, None)
    if known is not None:
        _held -= known.held
    page.held = held
    _cache[key] = page
    _held += held
    while len(_cache) > CACHED_PAGES or _held > CACHED_BYTES:
        if len(_cache) < 2:
            _held = held
            break
        try:
            old = _cache.pop(next(iter(_cache)), None)
        except (RuntimeError, StopIteration):  # another thread changed the cache
            continue
        if old is not None:
            _held -= old.held


# --- nodes that are not in memory


class ColdNode(Node):
    """A node in a page. `ids` and `rows` read the DATA row."""

    __slots__ = ("_cold", "_page")

    def __init__(self, cold: ColdPages, page: Page, at: int, deleted: int) -> None:
        self.ordinal = page.ordinal + at
        self.count = page.counts[at]
        self.deleted = deleted
        self.first = page.firsts[at]
        self.last = page.lasts[at]
        self.block = None
        self._cold = cold
        self._page = page

    def _decoded(self) -> Decoded:
        page = self._page
        return self._cold.block(page, self.ordinal - page.ordinal).decoded()

    def ids(self) -> list[int]:
        """IDs of all slots. Raises CorruptBlock."""
        return self._decoded().ids()

    def rows(self) -> list[EntryRow]:
        """Rows of all slots. Raises CorruptBlock."""
        return self._decoded().rows()

    def columns(self) -> tuple[EntryRow, Sequence[bytes]] | None:
        """As of a node in memory. Raises CorruptBlock."""
        return self._decoded().columns()


FoundNode = tuple[Page, int, int]  # page, index of the node in the page, deleted slots of the node


class ColdPages:
    """The cold nodes of a stream: ordinals `head` up to, not including, `stop`. The node at `head` is live.

    number    the stream's number               marks     deleted slots that the PAGE rows do not have yet
    head_id   ID of the head's first slot       last_id   no slot has a greater ID
    nodes     number of live nodes

    Every method may raise CorruptBlock, which names the stream, the blocks and the IDs.
    """

    __slots__ = (
        *("store", "number", "marks", "head", "head_id", "stop", "nodes", "last_id"),
        *("_serial", "_recent"),
    )

    def __init__(
        self,
        store: ColdStore,
        number: int,
        marks: Marks,
        head: int,
        head_id: int,
        stop: int,
        nodes: int,
        last_id: int,
    ) -> None:
        self.store = store
        self.number = number
        self.marks = marks
        self.head = head
        self.head_id = head_id
        self.stop = stop
        self.nodes = nodes
        self.last_id = last_id
        self._serial = next(_serials)
        self._recent = -1  # first ID of the page that was used last

    # --- pages

    def _damaged(self, start: int, stop: int, low: int, high: int, what: str) -> CorruptBlock:
        return CorruptBlock(
            f"stream {self.number}, blocks {start} to {max(stop - 1, start)} (IDs {_text(low)} to {_text(high)}):"
            f" {what}"
        )

    def _page(self, row: tuple[bytes, bytes]) -> Page:
        key, payload = row
        first = self._recent = page_first(key)
        place = (self._serial, first)
        page = _cache.pop(place, None)
        if page is None:
            try:
                page = unpack_page(first, payload)
            except Exception as error:
                raise CorruptBlock(f"page at ID {_text(first)} is unreadable: {error}") from error
            _remember(place, page)
        else:
            _cache[place] = page
        return page

    def _page_before(self, entry_id: int) -> Page | None:
        """The page with the greatest first ID <= `entry_id`. It may be one that was cut off (ordinal >= stop)."""
        row = self.store.before(page_row(self.number, entry_id), page_prefix(self.number))
        return self._page(row) if row is not None else None

    def _seek(self, entry_id: int) -> Page | None:
        """The page of the node with the greatest first ID <= `entry_id`; None if that node is before the head."""
        recent = _cache.get((self._serial, self._recent))
        if recent is not None and recent.firsts[0] <= entry_id <= recent.firsts[-1]:
            if self.head < recent.stop and recent.stop <= self.stop:
                return recent
        before = entry_id
        try:
            while (page := self._page_before(before)) is not None and page.ordinal >= self.stop:
                # the stream no longer has this page; the next checkpoint deletes it
                before = page.first - 1
        except CorruptBlock as damage:
            raise self._damaged(
                self.head,
                self.stop,
                self.head_id,
                before,
                f"the page of the last block is damaged: {damage}",
            ) from damage
        if page is None or page.stop <= self.head:
            if entry_id < self.head_id:
                return None
            raise self._damaged(
                self.head,
                self.stop,
                self.head_id,
                entry_id,
                "the page of the first block is missing",
            )
        return page

    def _after(self, page: Page) -> Page:
        """The next page. Raises CorruptBlock if it is missing."""
        start, low = page.stop, self._behind(page)
        try:
            row = self.store.after(page_row(self.number, page.first + 1), page_prefix(self.number))
            found = self._page(row) if row is not None else None
        except CorruptBlock as damage:
            raise self._damaged(
                start,
                self.stop,
                low,
                self.last_id,
                f"the page of the first block is damaged: {damage}",
            ) from damage
        if found is None or found.ordinal != start:
            stop, high = self.stop, self.last_id
            if found is not None and start < found.ordinal < stop:
                stop, high = found.ordinal, found.first - 1
            raise self._damaged(start, stop, low, high, "they are missing")
        return found

    def _before(self, page: Page) -> Page:
        """The previous page. Raises CorruptBlock if it is missing."""
        stop, high = page.ordinal, page.first - 1
        try:
            found = self._page_before(high)
        except CorruptBlock as damage:
            raise self._damaged(
                self.head,
                stop,
                self.head_id,
                high,
                f"the page of the last block is damaged: {damage}",
            ) from damage
        if found is None or found.stop != stop:
            start, low = self.head, self.head_id
            if found is not None and start < found.stop < stop:
                start, low = found.stop, self._behind(found)
            raise self._damaged(start, stop, low, high, "they are missing")
        return found

    def _behind(self, page: Page) -> int:
        """A lower bound for the IDs of the entries after the page, for error messages.

        The last slot's ID + 1; but if the last slot is deleted, its ID may be too great, so the first slot's.
        """
        return (page.firsts if self._ends_deleted(page) else page.lasts)[-1] + 1

    def _ends_deleted(self, page: Page) -> bool:
        """Whether the page's last slot is deleted. Then smaller IDs may follow it, since XSETID can set the last ID
        back.
        """
        deleted = self.marks.mask(page.stop - 1, page.masks[-1])
        return deleted.bit_length() >= page.counts[-1] > 0

    def _with(self, ordinal: int, entry_id: int) -> tuple[Page, int]:
        """(page, index in the page) of a node. `entry_id`: an ID of this node, or of one near it."""
        page = _cache.get((self._serial, self._recent))
        if page is None or not page.ordinal <= ordinal < page.stop:
            page = self._seek(entry_id) or self._seek(self.head_id)
            assert page is not None
            while page.ordinal > ordinal:
                page = self._before(page)
            while page.stop <= ordinal:
                page = self._after(page)
        return page, ordinal - page.ordinal

    def block(self, page: Page, at: int) -> StoredBlock:
        """The block of the node at index `at` of a page. Its `deleted` is not up to date; `marks` has the mask."""
        blocks = page.blocks
        if blocks is None:
            blocks = self._fetch(page)
        block = blocks[at]
        if block is None:
            start = sum(page.lengths[:at])
            part = page.data[start : start + page.lengths[at]]
            slots, first, last = page.counts[at], page.firsts[at], page.lasts[at]
            block = StoredBlock(part, slots, last, self.number, page.ordinal + at, first)
            blocks[at] = block
            if None not in blocks:
                page.data = b""
        return block

    def _fetch(self, page: Page) -> list[StoredBlock | None]:
        try:
            data = self.store.get(data_row(self.number, page.first))
        except CorruptBlock as damage:
            raise self._damaged(
                page.ordinal, page.stop, page.first, page.lasts[-1], str(damage)
            ) from damage
        if data is None or len(data) != sum(page.lengths):
            what = "the data of the blocks is missing"
            if data is not None:
                what = (
                    f"the data of the blocks has {len(data)} bytes instead of {sum(page.lengths)}"
                )
            raise self._damaged(page.ordinal, page.stop, page.first, page.lasts[-1], what)
        page.data = data
        blocks = page.blocks = [None] * len(page.lengths)
        _remember((self._serial, page.first), page, len(data))
        return blocks

    # --- walking

    def _locate(self, entry_id: int) -> tuple[Page, int] | None:
        """(page, index) of the node with the greatest first ID <= `entry_id`, live or not; None if before the head."""
        page = _cache.get((self._serial, self._recent))
        if page is not None and page.firsts[0] <= entry_id <= page.lasts[-1]:
            at = bisect_right(page.firsts, entry_id) - 1
            if self.head <= page.ordinal + at < self.stop and (
                at < len(page.counts) - 1 or not self._ends_deleted(page)
            ):
                return page, at
        page = self._seek(entry_id)
        if page is None:
            return None
        low = max(self.head - page.ordinal, 0)
        nodes = min(self.stop - page.ordinal, len(page.counts))
        at = bisect_right(page.firsts, entry_id, low, nodes) - 1
        if at < low:
            return None
        if at == nodes - 1 and entry_id > page.lasts[at] and page.stop < self.stop:
            # raises if the next page is missing, because that page could hold the ID
            self._after(page)
        return page, at

    def between(self, start: int, end: int) -> Iterator[FoundNode]:
        """Yield the live nodes that may hold IDs start..end, ascending."""
        if end < self.head_id:
            return
        found = self._locate(max(start, self.head_id))
        assert found is not None
        page, low = found
        while True:
            nodes = min(self.stop - page.ordinal, len(page.counts))
            deleted = 0
            for at in range(low, nodes):
                if page.firsts[at] > end:
                    return
                deleted = self.marks.mask(page.ordinal + at, page.masks[at])
                if deleted.bit_count() < page.counts[at]:
                    yield page, at, deleted
            if page.stop >= self.stop:
                return
            # Do not read a page that the caller does not need, because it may be damaged. But go on if this page ends
            # in a deleted slot: after an XSETID, smaller IDs may follow that slot.
            if page.lasts[-1] >= end and deleted.bit_length() < page.counts[-1]:
                return
            page = self._after(page)
            low = 0

    def back(self, start: int, end: int) -> Iterator[FoundNode]:
        """Yield the live nodes that may hold IDs start..end, descending."""
        found = self._locate(end)
        if found is None:
            return
        page, at = found
        while True:
            for at in range(at, max(self.head - page.ordinal, 0) - 1, -1):
                deleted = self.marks.mask(page.ordinal + at, page.masks[at])
                if deleted.bit_count() < page.counts[at]:
                    yield page, at, deleted
                if page.firsts[at] <= start:
                    return
            if page.ordinal <= self.head:
                return
            page = self._before(page)
            at = len(page.counts) - 1

    def walk(self) -> Iterator[Node]:
        """Yield every live node, ascending."""
        for page, at, deleted in self.between(0, MAX):
            yield ColdNode(self, page, at, deleted)

    def walk_back(self) -> Iterator[Node]:
        """Yield every live node, descending."""
        for page, at, deleted in self.back(0, MAX):
            yield ColdNode(self, page, at, deleted)

    def in_second_half(self, entry_id: int) -> bool:
        """Whether an ID lies after the middle node, so that a walk to it from the end is the shorter one."""
        found = self._locate(entry_id)
        return found is not None and 2 * (found[0].ordinal + found[1]) > self.head + self.stop

    def all_blocks(self) -> Iterator[tuple[int, Block | None]]:
        """Yield (first ID, block) of every node from the head on, as a stream keeps them; None for a node not live."""
        page, low = self._with(self.head, self.head_id)
        while True:
            for at in range(low, min(self.stop - page.ordinal, len(page.counts))):
                deleted = self.marks.mask(page.ordinal + at, page.masks[at])
                block: Block | None = None
                if deleted.bit_count() < page.counts[at]:
                    stored = self.block(page, at)
                    block = Block(stored.data, stored.count, stored.last, deleted)
                yield page.firsts[at], block
            if page.stop >= self.stop:
                return
            page = self._after(page)
            low = 0

    # --- reading

    def first_live(self) -> int:
        """ID of the first live entry."""
        page, at = self._with(self.head, self.head_id)
        slot = lowest_live(self.marks.mask(self.head, page.masks[at]))
        return self.block(page, at).decoded().id_at(slot) if slot else self.head_id

    def last_live(self) -> int:
        """ID of the last live entry."""
        page, at, deleted = next(self.back(0, MAX))
        slots = page.counts[at]
        if not deleted >> (slots - 1):
            return page.lasts[at]
        return self.block(page, at).decoded().id_at(highest_live(deleted, slots))

    def last_node(self) -> Node:
        """The last live node. It is the last of all if the stream has no resident node."""
        page, at, deleted = next(self.back(0, MAX))
        return ColdNode(self, page, at, deleted)

    def find(self, entry_id: int) -> tuple[StoredBlock, int] | None:
        """(block, slot) of a live entry, or None."""
        found = self._locate(entry_id)
        if found is None:
            return None
        page, at = found
        if page.lasts[at] < entry_id:
            return None
        deleted = self.marks.mask(page.ordinal + at, page.masks[at])
        if deleted.bit_count() >= page.counts[at]:
            return None
        block = self.block(page, at)
        slot = block.decoded().find(entry_id)
        return None if slot < 0 or deleted >> slot & 1 else (block, slot)

    def stretch(self, entry_id: int, count: int) -> tuple[StoredBlock, int] | None:
        """(block, slot) of the first of the `count` entries after an ID, if all of them are consecutive slots of one
        node in the page used last, as in most calls of a sequential reader. Otherwise None, whether they exist or not.
        """
        page = _cache.get((self._serial, self._recent))
        if page is None or not page.firsts[0] <= entry_id < page.lasts[-1]:
            return None
        at = bisect_right(page.firsts, entry_id) - 1
        if page.lasts[at] <= entry_id:
            at += 1
        ordinal = page.ordinal + at
        if (
            at == len(page.counts)
            or page.counts[at] < count
            or not self.head <= ordinal < self.stop
        ):
            return None
        block = self.block(page, at)
        slot = block.decoded().slot_from(entry_id + 1)
        if slot + count > block.count or self.marks.mask(ordinal, page.masks[at]) >> slot:
            return None
        return block, slot

    def slots(self, ordinal: int, entry_id: int) -> tuple[list[int], int]:
        """(IDs of all slots, mask of the deleted slots) of the node that contains `entry_id`."""
        page, at = self._with(ordinal, entry_id)
        ids = self.block(page, at).decoded().ids()
        return ids, self.marks.mask(ordinal, page.masks[at])

    # --- changing: if a method leaves `nodes` at 0, the caller drops this object

    def mark(self, ordinal: int, mask: int, entry_id: int | None = None) -> int:
        """Mark slots of a node deleted. Returns the ID of the node's last slot.

        entry_id: an ID in or near the node, so that its page is found without a walk from the head; None: not known.
        """
        page, at = self._with(ordinal, self.head_id if entry_id is None else entry_id)
        if mask >> page.counts[at]:
            raise ValueError(NO_SLOT)
        mask |= self.marks.mask(ordinal, page.masks[at])
        self.marks.now[ordinal] = (page.firsts[at], mask)
        if mask.bit_count() == page.counts[at]:
            self.nodes -= 1
            if ordinal == self.head and self.nodes:
                self._move_head(0)
        return page.lasts[at]

    def drop(self, nodes: int) -> tuple[int, int]:
        """Drop up to `nodes` live nodes from the head. Returns (number dropped, upper bound of their slots' IDs)."""
        if nodes >= self.nodes:
            dropped, self.nodes = self.nodes, 0
            return dropped, self.last_id
        self._move_head(nodes)
        self.nodes -= nodes
        # IDs ascend, so every dropped ID is below the new head's.
        return nodes, self.head_id - 1

    def _move_head(self, nodes: int) -> None:
        """Set the head to the live node after `nodes` others.

        The walk starts at the nearer end. If it meets damage, walk from the other end, which leads to the same node:
        decide may have planned the trim from either end, and apply must not fail where decide succeeded.
        """
        ways = [self._nth_from_head, self._nth_from_end]
        if 2 * nodes > self.nodes:
            ways.reverse()
        try:
            page, at = ways[0](nodes)
        except CorruptBlock:
            page, at = ways[1](nodes)
        self.head = page.ordinal + at
        self.head_id = page.firsts[at]

    def _nth_from_head(self, nodes: int) -> tuple[Page, int]:
        """The live node after `nodes` others, found from the head."""
        for page, at, _ in islice(self.between(0, MAX), nodes, None):
            return page, at
        raise self._too_few()

    def _nth_from_end(self, nodes: int) -> tuple[Page, int]:
        """The live node after `nodes` others, found from the end."""
        for page, at, _ in islice(self.back(0, MAX), self.nodes - nodes - 1, None):
            return page, at
        raise self._too_few()

    def _too_few(self) -> CorruptBlock:
        return self._damaged(
            self.head,
            self.stop,
            self.head_id,
            self.last_id,
            "fewer entries are live than were stored",
        )

    def pop(self) -> None:
        """Remove the last node. It must be live."""
        self.stop -= 1
        self.nodes -= 1

    def tidy_end(self) -> None:
        """Remove the nodes at the end that are not live."""
        page, at, _ = next(self.back(0, MAX))
        self.stop = page.ordinal + at + 1
