"""Nodes: a stream's attributes and everything that reads them. `stream.py` draws the layout and changes it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final

from tidelog.engine.ids import MAX
from tidelog.engine.streams.block import Block, Row
from tidelog.engine.streams.entries import NO_ENTRIES, BlockPart, Entries, Part, RowsPart
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.marks import Marks
from tidelog.engine.streams.node import Node, highest_live, live_slots, lowest_live
from tidelog.engine.streams.pages import ColdPages
from tidelog.engine.untracked import untracked

if TYPE_CHECKING:
    from tidelog.engine.groups.group import Group

NEVER_HANDED: Final = 0  # not a generation: a state over a checkpoint begins with generation 2
NO_CUT: Final = 1 << 62


class Nodes:
    """The read half of `Stream`. Only `Stream` uses the attributes that begin with `tail_` or `_`."""

    __slots__ = (
        *("number", "length", "last_id", "max_deleted_id", "entries_added", "groups", "idmp"),
        "removed_max",
        *("first_ordinal", "head", "holes", "blocks", "firsts"),
        *("tail_ids", "tail_rows", "tail_deleted"),
        *("tail_bound", "tail_until", "tail_body", "tail_counted", "_first"),
        *("mark", "handed_gen", "handed_stop", "stored_stop", "cold", "marks", "cut", "next_group"),
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.length = 0
        self.last_id = 0
        self.max_deleted_id = 0
        self.entries_added = 0
        # No entry above this ID was ever removed, by any command. Never lowered. Removals raise it to the last slot of
        # their node, since apply does not know the IDs that it removes. Not visible to users, not part of the digest.
        self.removed_max = 0
        self.groups: dict[bytes, Group] = untracked({})
        self.idmp: Idmp | None = None  # None: never used, all settings default
        self.first_ordinal = 0  # of blocks[head], or of the tail
        self.head = 0
        self.holes = 0  # number of Nones in blocks after the head
        self.blocks: list[Block | None] = untracked([])
        self.firsts: list[int] = untracked([])
        self.tail_ids: list[int] = untracked([])
        self.tail_rows: list[Row] = untracked([])
        self.tail_deleted = 0
        # Caches. tail_bound: upper bound of the tail's size in Redis, valid for entries before ms `tail_until`.
        # tail_body: exact size of the first `tail_counted` slots, without the two counters. _first: ID of the first
        # live entry, None if not known.
        self.tail_bound = 0
        self.tail_until = 0
        self.tail_body = 0
        self.tail_counted = 0
        self._first: int | None = None
        # State for checkpoints; engine.keys.changes and engine.keys.freeze write it too.
        self.mark = 0  # generation of the last change; 0: unchanged since it was loaded
        self.handed_gen = NEVER_HANDED  # generation of the last handover; >= 1 if it was loaded
        self.handed_stop = 0
        self.stored_stop = 0
        self.cut = NO_CUT  # stored nodes from this ordinal on no longer belong to the stream
        self.cold: ColdPages | None = None
        self.marks: Marks | None = None  # created with the first handover
        self.next_group = 1  # number of the next group
        untracked(self)

    # --- reading

    def first_id(self) -> int:
        """ID of the first live entry, 0 if there is none."""
        if not self.length:
            return 0
        if self._first is None:
            if self.cold is not None:
                self._first = self.cold.first_live()
            elif self.head < len(self.blocks):
                block = self.blocks[self.head]
                assert block is not None
                slot = lowest_live(block.deleted)
                self._first = block.decoded().id_at(slot) if slot else self.firsts[self.head]
            else:
                self._first = self.tail_ids[lowest_live(self.tail_deleted)]
        return self._first

    def last_live_id(self) -> int:
        """ID of the last live entry, 0 if there is none."""
        if self.tail_ids:
            if not self.tail_deleted:
                return self.tail_ids[-1]
            return self.tail_ids[highest_live(self.tail_deleted, len(self.tail_ids))]
        if not self.length:
            return 0
        if self.head == len(self.blocks):
            assert self.cold is not None
            return self.cold.last_live()
        block = self.blocks[-1]
        assert block is not None
        if not block.deleted >> (block.count - 1):
            return block.last
        return block.decoded().id_at(highest_live(block.deleted, block.count))

    def find(self, entry_id: int) -> tuple[int, int] | None:
        """(block ordinal, slot) of a live entry, or None. May raise CorruptBlock."""
        if entry_id == self._first and self.cold is None:
            # The first live entry, known without a search: consumers mostly take entries in order.
            block = self.blocks[self.head] if self.head < len(self.blocks) else None
            deleted = self.tail_deleted if block is None else block.deleted
            return self.first_ordinal, (~deleted & deleted + 1).bit_length() - 1  # as `lowest_live`
        ids = self.tail_ids
        if ids and entry_id >= ids[0]:
            slot = bisect_left(ids, entry_id)
            if slot < len(ids) and ids[slot] == entry_id and not self.tail_deleted >> slot & 1:
                return self.first_ordinal + len(self.blocks) - self.head, slot
            return None
        at = bisect_right(self.firsts, entry_id, self.head) - 1
        if at < self.head:
            found = self.cold.find(entry_id) if self.cold is not None else None
            return (found[0].ordinal, found[1]) if found is not None else None
        block = self.blocks[at]
        if block is None or block.last < entry_id:
            return None
        slot = block.decoded().find(entry_id)
        if slot < 0 or block.deleted >> slot & 1:
            return None
        return self.first_ordinal + at - self.head, slot

    def places(self, entry_ids: list[int]) -> tuple[list[int], list[int]]:
        """(the IDs that exist, (ordinal, slot, ordinal, slot, ...) of each) of a list of distinct ascending IDs.

        Same as `find` for each, but works node by node: consecutive IDs of a node are found as one run. Raises
        CorruptBlock.
        """
        if len(entry_ids) == 1:
            alone = self.find(entry_ids[0])
            return ([], []) if alone is None else (entry_ids, [*alone])
        found: list[int] = []
        slots: list[int] = []
        at = 0
        while at < len(entry_ids):
            place = self.find(entry_ids[at])
            if place is None:
                at += 1
                continue
            ordinal, slot = place
            node = ordinal - self.first_ordinal + self.head
            if node == len(self.blocks):
                ids, deleted = self.tail_ids, self.tail_deleted
            elif node < self.head:
                assert self.cold is not None
                ids, deleted = self.cold.slots(ordinal, entry_ids[at])
            else:
                block = self.blocks[node]
                assert block is not None
                ids, deleted = block.decoded().ids(), block.deleted
            run = ids[slot : slot + len(entry_ids) - at]
            if deleted >> slot or run != entry_ids[at : at + len(run)]:
                run = run[:1]
            found += run
            slots += chain.from_iterable(zip(repeat(ordinal), range(slot, slot + len(run))))
            at += len(run)
        return found, slots

    def contains(self, entry_id: int) -> bool:
        """Whether the entry exists. May raise CorruptBlock."""
        return self.find(entry_id) is not None

    def still_has(self, entry_id: int) -> bool:
        """`contains` for an ID that once existed, such as a pending one. In most cases it reads no block.

        May raise CorruptBlock.
        """
        return entry_id > self.removed_max or self.find(entry_id) is not None

    def get(self, entry_id: int) -> Row | None:
        """The row of an entry, or None. May raise CorruptBlock."""
        found = self._slot(entry_id)
        if found is None:
            return None
        block, slot = found
        return self.tail_rows[slot] if block is None else block.decoded().row(slot)

    def _one(self, entry_id: int) -> Entries:
        """`range` of one ID."""
        found = self._slot(entry_id)
        if found is None:
            return NO_ENTRIES
        block, slot = found
        if block is None:
            return Entries((RowsPart([entry_id], [self.tail_rows[slot]]),), 1)
        return Entries((BlockPart(block, slot, slot + 1, None),), 1)

    def _slot(self, entry_id: int) -> tuple[Block | None, int] | None:
        """(block, slot) of a live entry, with block None in the tail; None if there is no such entry."""
        if self.cold is not None:
            warm = self.firsts[self.head : self.head + 1] or self.tail_ids[:1]
            if not warm or entry_id < warm[0]:
                return self.cold.find(entry_id)
        found = self.find(entry_id)
        if found is None:
            return None
        at = found[0] - self.first_ordinal + self.head
        return (self.blocks[at] if at < len(self.blocks) else None), found[1]

    def range(
        self, start: int, end: int, count: int | None = None, reverse: bool = False
    ) -> Entries:
        """Live entries with start <= ID <= end, at most `count` (None: all); descending if `reverse`.

        May raise CorruptBlock.
        """
        left = self.length if count is None else min(count, self.length)
        if left <= 0 or start > end:
            return NO_ENTRIES
        if start == end:
            return self._one(start)
        parts: list[Part] = []
        total = 0
        for block, first, deleted in self._between(start, end, reverse):
            part: Part
            if block is None:
                ids = self.tail_ids
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
                    part = RowsPart([ids[s] for s in slots], [self.tail_rows[s] for s in slots])
                else:
                    part = BlockPart(block, low, high, slots)
            else:
                low, high = _cut(low, high, left, reverse)
                size = high - low
                if block is None:
                    part = RowsPart(ids[low:high], self.tail_rows[low:high])
                else:
                    part = BlockPart(block, low, high, None)
            if size > 0:
                parts.append(part)
                total += size
                left -= size
                if not left:
                    break
        return Entries(parts, total, reverse) if total else NO_ENTRIES

    def after(self, entry_id: int, count: int) -> Entries:
        """The first `count` live entries after an ID. Fast if one node holds all of them, as for most reads.

        May raise CorruptBlock.
        """
        tail_ids = self.tail_ids
        if tail_ids and tail_ids[0] <= entry_id:
            low = bisect_right(tail_ids, entry_id)
            if not self.tail_deleted >> low:
                stop = low + count
                ids = tail_ids[low:stop]
                if not ids:
                    return NO_ENTRIES
                return Entries((RowsPart(ids, self.tail_rows[low:stop]),), len(ids))
        else:
            blocks = self.blocks
            at = bisect_right(self.firsts, entry_id, self.head) - 1
            if at < self.head:
                if self.cold is not None:
                    found = self.cold.stretch(entry_id, count)
                    if found is None:
                        return self.range(entry_id + 1, MAX, count)
                    part = BlockPart(found[0], found[1], found[1] + count, None)
                    return Entries((part,), count)
                at = self.head
            block = blocks[at] if at < len(blocks) else None
            # The ID may lie between two nodes.
            if block is not None and block.last <= entry_id:
                at += 1
                block = blocks[at] if at < len(blocks) else None
            if block is not None:
                low = block.decoded().slot_from(entry_id + 1) if self.firsts[at] <= entry_id else 0
                # Slots before `low` may be deleted, as consumers that acknowledge and delete leave them.
                if low + count <= block.count and not block.deleted >> low:
                    return Entries((BlockPart(block, low, low + count, None),), count)
        return self.range(entry_id + 1, MAX, count)

    def one_at_most_after(self, entry_id: int) -> bool:
        """True if at most one entry comes after an ID. May be False for a reader that has not kept up, though at most
        one does: it looks only at the end of the tail."""
        ids = self.tail_ids
        return len(ids) > 1 and ids[-2] <= entry_id

    def next_after(self, entry_id: int) -> tuple[int, Row] | None:
        """(ID, row) of the first live entry after an ID, or None. `after` for a reader that takes one at a time.

        May raise CorruptBlock.
        """
        ids = self.tail_ids
        if len(ids) > 1 and ids[-2] <= entry_id < ids[-1] and not self.tail_deleted:
            return ids[-1], self.tail_rows[-1]  # a reader that keeps up reads the last entry
        if entry_id >= self.last_id:
            return None
        blocks, head = self.blocks, self.head
        at = bisect_right(self.firsts, entry_id, head) - 1
        if at >= head:
            block = blocks[at]
            if block is None or block.last <= entry_id:  # the ID lies between two nodes
                at += 1
        elif self.cold is None or self.tail_ids and self.tail_ids[0] <= entry_id:
            at = head
        else:
            return self._next_of_cold(entry_id)
        if at == len(blocks):
            ids, rows, deleted = self.tail_ids, self.tail_rows, self.tail_deleted
        else:
            block = blocks[at]
            if block is None:
                return self._first_from(entry_id + 1)
            ids, rows = block.listed()
            deleted = block.deleted
        slot = bisect_right(ids, entry_id)
        if deleted:
            if deleted == (1 << slot) - 1:
                # Every slot before the next entry is deleted, as in a queue. In the head node it is the first live one.
                if at == head and self.cold is None:
                    self._first = ids[slot]
            elif deleted >> slot:
                return self._first_from(entry_id + 1)
        return (ids[slot], rows[slot]) if slot < len(ids) else None

    def _next_of_cold(self, entry_id: int) -> tuple[int, Row] | None:
        """`next_after` where the next entry is cold."""
        assert self.cold is not None
        found = self.cold.stretch(entry_id, 1)
        if found is None:
            return self._first_from(entry_id + 1)
        block, slot = found
        ids, rows = block.listed()
        return ids[slot], rows[slot]

    def _first_from(self, start: int) -> tuple[int, Row] | None:
        """The first live entry with ID >= `start`, by `range`."""
        return next(iter(self.range(start, MAX, 1)), None)  # type: ignore[return-value]

    def nodes(self) -> int:
        """The number of nodes (XINFO's radix-tree-keys)."""
        resident = len(self.blocks) - self.head - self.holes + bool(self.tail_ids)
        return resident if self.cold is None else resident + self.cold.nodes

    def walk(self) -> Iterator[Node]:
        """Yield every node, ascending. May raise CorruptBlock."""
        if self.cold is not None:
            yield from self.cold.walk()
        for at in range(self.head, len(self.blocks)):
            block = self.blocks[at]
            if block is not None:
                ordinal = self.first_ordinal + at - self.head
                yield Node(ordinal, block.deleted, self.firsts[at], block.last, block, [], [])
        if self.tail_ids:
            yield self.tail_node()

    def walk_back(self) -> Iterator[Node]:
        """Yield every node, descending. May raise CorruptBlock."""
        if self.tail_ids:
            yield self.tail_node()
        for at in range(len(self.blocks) - 1, self.head - 1, -1):
            block = self.blocks[at]
            if block is not None:
                ordinal = self.first_ordinal + at - self.head
                yield Node(ordinal, block.deleted, self.firsts[at], block.last, block, [], [])
        if self.cold is not None:
            yield from self.cold.walk_back()

    def tail_node(self) -> Node:
        """The open tail. The stream must have one."""
        ids = self.tail_ids
        ordinal = self.first_ordinal + len(self.blocks) - self.head
        return Node(ordinal, self.tail_deleted, ids[0], ids[-1], None, ids, self.tail_rows)

    def last_sealed(self) -> Node | None:
        """The last sealed node, or None. Reads no entries. May raise CorruptBlock."""
        at = len(self.blocks) - 1
        if at < self.head:
            return self.cold.last_node() if self.cold is not None and not self.tail_ids else None
        block = self.blocks[at]
        if block is None:
            return None
        ordinal = self.first_ordinal + at - self.head
        return Node(ordinal, block.deleted, self.firsts[at], block.last, block, [], [])

    def memory(self) -> int:
        """Approximate bytes of memory: the resident blocks, and the lists and rows of the tail."""
        sealed = sum(len(block.data) + 240 for block in self.blocks if block is not None)
        rows = sum(sum(map(len, row)) + 40 * len(row) + 140 for row in self.tail_rows)
        return 600 + sealed + rows

    def _between(
        self, start: int, end: int, reverse: bool
    ) -> Iterator[tuple[Block | None, int, int]]:
        """Yield (block, first slot's ID, deleted slots) of the nodes that may hold start..end. The tail: block None."""
        blocks, firsts, tail_ids, cold = self.blocks, self.firsts, self.tail_ids, self.cold
        low = bisect_right(firsts, start, self.head) - 1
        if low < self.head:
            low = self.head
        else:
            cold = None
        stop = bisect_right(firsts, end, self.head)
        with_tail = bool(tail_ids) and tail_ids[0] <= end
        if with_tail and tail_ids[0] <= start:
            low, stop, cold = 0, 0, None
        span = range(low, stop)
        if reverse:
            if with_tail:
                yield None, tail_ids[0], self.tail_deleted
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
                yield None, tail_ids[0], self.tail_deleted


def _cut(low: int, high: int, left: int, reverse: bool) -> tuple[int, int]:
    """The first `left` of the slots low..high-1, the last ones if `reverse`."""
    if high - low <= left:
        return low, high
    return (high - left, high) if reverse else (low, low + left)
