"""Stream: entries in nodes, their counters, and the groups and dedup tables that hang on it.

A node is a run of slots, one per entry ever put there; a deleted entry keeps its slot until the node goes
(spec 2.4). All nodes but the last are sealed blocks; the last is the open *tail*, two lists. If the tail's last live
entry goes, the stream has no tail until the next XADD. Whether an XADD starts a node is decided, never found
out here: nothing in this module knows a limit, and no mutating method reads an entry's bytes or can fail.

    blocks   [ dropped... | B | B | hole | B ]  + tail          firsts[i] = first slot's ID of blocks[i]
               ^0           ^head                               ordinal of blocks[i] = first_ordinal + i - head

A node that dies between living ones leaves a hole (None), so ordinals of the others stay what they are.

What is kept true: slot IDs ascend strictly inside a node and across nodes; blocks[head] is no hole; without a tail,
blocks[-1] is none either; no node is without a live entry; length = live entries. `check()` walks all of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

from tidelog.engine import listpack
from tidelog.engine.block import Block, Row, encode
from tidelog.engine.entries import NO_ENTRIES, BlockPart, Entries, Part, RowsPart
from tidelog.engine.idmp import Idmp
from tidelog.engine.ids import MAX, SEQ_MAX

if TYPE_CHECKING:
    from tidelog.engine.group import Group

COUNTER_MAX: Final = (1 << 63) - 1
NEVER_HANDED: Final = -1
NO_CUT: Final = 1 << 62
COMPACT_AT: Final = 64  # dropped list positions kept before they are given back

# `tail_bound`, an upper bound of the tail's size in Redis that is cheap enough for every XADD. Of an element: its
# length, 2 for encoding and backlen (the two bytes of SEPARATOR), and a 32nd of the row for longer headers; of an
# entry: flags 2, ms diff 4, seq diff 3, numfields 2, lp-count 2, and 2 for the element that no separator follows.
# It holds while ms diffs stay below MS_DIFF_MAX, which `tail_until` says; beyond, sizes are counted exactly.
SEPARATOR: Final = b"\0\0"
ENTRY_BYTES_MAX: Final = 15
MS_DIFF_MAX: Final = 32767
SEQ_SMALL_MAX: Final = 4095  # a greater diff of seqs takes up to 7 bytes more
SEQ_LARGE_BYTES: Final = 7
COUNTERS_MAX: Final = 20  # count and deleted
NODE_BYTES_BASE: Final = 20 + COUNTERS_MAX  # and header, EOF, numfields, terminator


def row_bytes_max(row: Row) -> int:
    """An upper bound of a row's bytes in a node, all but large diffs."""
    size = len(SEPARATOR.join(row))
    return size + (size >> 5) + ENTRY_BYTES_MAX


class Node:
    """One node as decide, digest and checks look at it. `block` is None for the open tail."""

    __slots__ = ("ordinal", "count", "deleted", "first", "last", "block", "_ids", "_rows")

    def __init__(
        self,
        ordinal: int,
        deleted: int,
        first: int,
        last: int,
        block: Block | None,
        ids: list[int],
        rows: list[Row],
    ) -> None:
        self.ordinal = ordinal
        self.count = block.count if block is not None else len(ids)  # slots
        self.deleted = deleted  # bit i set = slot i is deleted
        self.first = first  # IDs of the first and last slot
        self.last = last
        self.block = block
        self._ids = ids
        self._rows = rows

    @property
    def live(self) -> int:
        """Entries that are not deleted."""
        return self.count - self.deleted.bit_count()

    def ids(self) -> list[int]:
        """IDs of all slots. May raise CorruptBlock."""
        return self._ids if self.block is None else self.block.decoded().ids()

    def rows(self) -> list[Row]:
        """Rows of all slots. May raise CorruptBlock."""
        return self._rows if self.block is None else self.block.decoded().rows()

    def live_slots(self) -> list[int]:
        """Slots that are not deleted, ascending."""
        if not self.deleted:
            return list(range(self.count))
        return live_slots(self.deleted, 0, self.count)

    def node_bytes(self) -> int:
        """The size Redis gives this node, exactly. May raise CorruptBlock."""
        body = listpack.body_size(self.ids(), self.rows())
        return body + listpack.counters_size(self.live, self.count - self.live)


class Stream:
    """One stream key's value. Attributes are plain state; those with `tail_` and `_` belong to this module."""

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
        # Above this ID nothing was ever removed, by whatever means; never lowered. A bound by whole nodes, so
        # that apply need not know the IDs it removes. Unseen by users and not part of a digest.
        self.removed_max = 0
        self.groups: dict[bytes, Group] = {}
        self.idmp: Idmp | None = None  # None: never used, everything default
        self.first_ordinal = 0  # of blocks[head], or of the tail
        self.head = 0
        self.holes = 0  # Nones behind the head
        self.blocks: list[Block | None] = []
        self.firsts: list[int] = []
        self.tail_ids: list[int] = []
        self.tail_rows: list[Row] = []
        self.tail_deleted = 0
        # Caches: the tail's greatest size and the ms from which it is void, the exact size of its first
        # `tail_counted` slots (counters left out), and the first live ID (None: not known).
        self.tail_bound = 0
        self.tail_until = 0
        self.tail_body = 0
        self.tail_counted = 0
        self._first: int | None = None
        # What checkpoints know of it. Changed by engine.changes and engine.freeze too.
        self.mark = 0  # the generation of changes in which it changed last; 0: unchanged since it was loaded
        self.handed_gen = (
            NEVER_HANDED  # the generation that was last handed to a checkpoint; 0: loaded
        )
        self.handed_stop = 0  # nodes below this ordinal were handed over
        self.stored_stop = (
            0  # nodes below this ordinal surely lie in the checkpoint that is committed
        )
        self.cold: Any = None
        self.marks: Any = None
        self.cut = NO_CUT  # stored nodes from this ordinal on are none of the stream's any more
        self.next_group = 1  # number of the next group

    # --- looking

    def first_id(self) -> int:
        """ID of the first live entry, 0 if there is none."""
        if not self.length:
            return 0
        if self._first is None:
            if self.head < len(self.blocks):
                block = self.blocks[self.head]
                assert block is not None
                slot = _lowest_live(block.deleted)
                self._first = block.decoded().id_at(slot) if slot else self.firsts[self.head]
            else:
                self._first = self.tail_ids[_lowest_live(self.tail_deleted)]
        return self._first

    def last_live_id(self) -> int:
        """ID of the last live entry, 0 if there is none."""
        if self.tail_ids:
            if not self.tail_deleted:
                return self.tail_ids[-1]
            return self.tail_ids[_highest_live(self.tail_deleted, len(self.tail_ids))]
        if not self.length:
            return 0
        block = self.blocks[-1]
        assert block is not None
        if not block.deleted >> (block.count - 1):
            return block.last
        return block.decoded().id_at(_highest_live(block.deleted, block.count))

    def find(self, entry_id: int) -> tuple[int, int] | None:
        """(block ordinal, slot) of a live entry, or None. May raise CorruptBlock."""
        ids = self.tail_ids
        if ids and entry_id >= ids[0]:
            slot = bisect_left(ids, entry_id)
            if slot < len(ids) and ids[slot] == entry_id and not self.tail_deleted >> slot & 1:
                return self.first_ordinal + len(self.blocks) - self.head, slot
            return None
        at = bisect_right(self.firsts, entry_id, self.head) - 1
        if at < self.head:
            return None
        block = self.blocks[at]
        if block is None or block.last < entry_id:
            return None
        slot = block.decoded().find(entry_id)
        if slot < 0 or block.deleted >> slot & 1:
            return None
        return self.first_ordinal + at - self.head, slot

    def places(self, entry_ids: list[int]) -> tuple[list[int], list[int]]:
        """Of these IDs, ascending and each once, the ones that are there, and (ordinal, slot, ordinal, slot, ...).

        As `find` for each, but node by node: IDs that follow each other there are found as one run.
        """
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
        """`contains` for an ID that was here once, as pending ones were: mostly told without reading a block."""
        return entry_id > self.removed_max or self.find(entry_id) is not None

    def get(self, entry_id: int) -> Row | None:
        """The row of an entry, or None. May raise CorruptBlock."""
        found = self.find(entry_id)
        if found is None:
            return None
        at = found[0] - self.first_ordinal + self.head
        if at == len(self.blocks):
            return self.tail_rows[found[1]]
        block = self.blocks[at]
        assert block is not None
        return block.decoded().row(found[1])

    def range(
        self, start: int, end: int, count: int | None = None, reverse: bool = False
    ) -> Entries:
        """Live entries with start <= ID <= end, at most `count` (None: all), last first if `reverse`.

        May raise CorruptBlock.
        """
        left = self.length if count is None else min(count, self.length)
        if left <= 0 or start > end:
            return NO_ENTRIES
        parts: list[Part] = []
        total = 0
        for at in self._positions(start, end, reverse):
            part: Part
            if at == len(self.blocks):
                ids = self.tail_ids
                low = bisect_left(ids, start) if ids[0] < start else 0
                high = bisect_right(ids, end) if ids[-1] > end else len(ids)
                if self.tail_deleted:
                    slots = live_slots(self.tail_deleted, low, high)
                    slots = slots[-left:] if reverse else slots[:left]
                    part = RowsPart([ids[s] for s in slots], [self.tail_rows[s] for s in slots])
                    size = len(slots)
                else:
                    low, high = _cut(low, high, left, reverse)
                    part = RowsPart(ids[low:high], self.tail_rows[low:high])
                    size = high - low
            else:
                block = self.blocks[at]
                if block is None:
                    continue
                low = block.decoded().slot_from(start) if self.firsts[at] < start else 0
                high = block.decoded().slot_from(end + 1) if block.last > end else block.count
                if block.deleted:
                    slots = live_slots(block.deleted, low, high)
                    slots = slots[-left:] if reverse else slots[:left]
                    part = BlockPart(block, low, high, slots)
                    size = len(slots)
                else:
                    low, high = _cut(low, high, left, reverse)
                    part = BlockPart(block, low, high, None)
                    size = high - low
            if size > 0:
                parts.append(part)
                total += size
                left -= size
                if not left:
                    break
        return Entries(parts, total, reverse) if total else NO_ENTRIES

    def after(self, entry_id: int, count: int) -> Entries:
        """`range` of what comes after an ID, straight to where one node has all of it, as for most reads."""
        blocks, tail_ids = self.blocks, self.tail_ids
        if tail_ids and tail_ids[0] <= entry_id:
            low = bisect_right(tail_ids, entry_id)
            if not self.tail_deleted >> low:
                ids = tail_ids[low : low + count]
                if not ids:
                    return NO_ENTRIES
                return Entries((RowsPart(ids, self.tail_rows[low : low + count]),), len(ids))
        else:
            at = max(bisect_right(self.firsts, entry_id, self.head) - 1, self.head)
            block = blocks[at] if at < len(blocks) else None
            if (
                block is not None and block.last <= entry_id
            ):  # a reader that stands between two nodes
                at += 1
                block = blocks[at] if at < len(blocks) else None
            if block is not None:
                low = block.decoded().slot_from(entry_id + 1) if self.firsts[at] <= entry_id else 0
                # What is deleted before it, as by those who acknowledge and delete, is in nobody's way.
                if low + count <= block.count and not block.deleted >> low:
                    return Entries((BlockPart(block, low, low + count, None),), count)
        return self.range(entry_id + 1, MAX, count)

    def nodes(self) -> int:
        """How many nodes there are (XINFO's radix-tree-keys)."""
        return len(self.blocks) - self.head - self.holes + bool(self.tail_ids)

    def walk(self) -> Iterator[Node]:
        """Every node from the head on."""
        for at in range(self.head, len(self.blocks)):
            block = self.blocks[at]
            if block is not None:
                ordinal = self.first_ordinal + at - self.head
                yield Node(ordinal, block.deleted, self.firsts[at], block.last, block, [], [])
        if self.tail_ids:
            yield self.tail_node()

    def tail_node(self) -> Node:
        """The open tail, which there must be."""
        ids = self.tail_ids
        ordinal = self.first_ordinal + len(self.blocks) - self.head
        return Node(ordinal, self.tail_deleted, ids[0], ids[-1], None, ids, self.tail_rows)

    def last_sealed(self) -> Node | None:
        """The last sealed node, or None."""
        at = len(self.blocks) - 1
        if at < self.head:
            return None
        block = self.blocks[at]
        if block is None:
            return None
        ordinal = self.first_ordinal + at - self.head
        return Node(ordinal, block.deleted, self.firsts[at], block.last, block, [], [])

    def memory(self) -> int:
        """Bytes of entries held, roughly: sealed data, and what lists and rows of the tail weigh."""
        sealed = sum(len(block.data) + 240 for block in self.blocks if block is not None)
        rows = sum(sum(map(len, row)) + 40 * len(row) + 140 for row in self.tail_rows)
        return 600 + sealed + rows

    # --- the tail's size

    def tail_bytes(self) -> int:
        """The open tail's size in Redis, exactly; makes the bound exact too. Counts each entry once."""
        tail_ids, rows, counted = self.tail_ids, self.tail_rows, self.tail_counted
        fields = rows[0][::2]
        body = self.tail_body if counted else listpack.master_size(fields)
        if counted < len(rows):
            body += listpack.entries_size(tail_ids[counted:], rows[counted:], tail_ids[0], fields)
            self.tail_counted = len(rows)
            self.tail_body = body
            self.tail_bound = body + COUNTERS_MAX
        deleted = self.tail_deleted.bit_count()
        return body + listpack.counters_size(len(rows) - deleted, deleted)

    def _start_bound(self, first: int, row: Row) -> None:
        """The bound of a node that will start with this entry."""
        self.tail_counted = 0
        self.tail_bound = NODE_BYTES_BASE + row_bytes_max(row)
        # Behind a large seq, small ones have large diffs too: no bound for such a node.
        small = first & SEQ_MAX <= SEQ_SMALL_MAX
        self.tail_until = (first >> 64) + MS_DIFF_MAX + 1 if small else 0

    def _bound(self, entry_id: int, row: Row) -> None:
        self.tail_bound += row_bytes_max(row)
        if entry_id & SEQ_MAX > SEQ_SMALL_MAX:
            self.tail_bound += SEQ_LARGE_BYTES

    # --- changing: called by apply alone

    def append(self, entry_id: int, row: Row) -> None:
        """Add an entry to the open tail. (apply_streams repeats this inline for XADD.)"""
        self.tail_ids.append(entry_id)
        self.tail_rows.append(row)
        self._bound(entry_id, row)
        self.last_id = entry_id
        self.length += 1
        self.entries_added = min(self.entries_added + 1, COUNTER_MAX)

    def start_node(self, entry_id: int, row: Row) -> None:
        """Add an entry to a new node, sealing the tail if there is one."""
        if self.tail_ids:
            self.seal_tail()
        self._start_bound(entry_id, row)
        self.append(entry_id, row)

    def seal_tail(self) -> None:
        """Turn the open tail, which there must be, into a block. There is no tail afterwards."""
        ids = self.tail_ids
        data = encode(ids, self.tail_rows)
        self.blocks.append(Block(data, len(ids), ids[-1], self.tail_deleted))
        self.firsts.append(ids[0])
        self._clear_tail()

    def append_many(
        self,
        first: int,
        head: tuple[Row, ...],
        blocks: tuple[tuple[int, bytes], ...],
        tail: tuple[Row, ...],
    ) -> None:
        """Add entries with IDs first, first+1, ...: to the open tail, as whole nodes, in a new open node."""
        if head:
            self._extend(first, head)
        if self.tail_ids and (blocks or tail):
            self.seal_tail()
        entry_id = first + len(head)
        for count, data in blocks:
            self.blocks.append(Block(data, count, entry_id + count - 1))
            self.firsts.append(entry_id)
            entry_id += count
        if tail:
            self._start_bound(entry_id, tail[0])
            self._extend(entry_id, tail)
            entry_id += len(tail)
        self.last_id = entry_id - 1
        self.length += entry_id - first
        self.entries_added = min(self.entries_added + entry_id - first, COUNTER_MAX)

    def _extend(self, first: int, rows: tuple[Row, ...]) -> None:
        """Put rows at the end of the tail; the counters are left to the caller."""
        stop = first + len(rows)
        self.tail_ids.extend(range(first, stop))
        self.tail_rows.extend(rows)
        self.tail_bound += sum(map(row_bytes_max, rows))
        if (stop - 1) & SEQ_MAX > SEQ_SMALL_MAX:
            self.tail_bound += SEQ_LARGE_BYTES * len(rows)

    def reopen(self, ids: list[int], rows: list[Row], deleted: int) -> None:
        """Make the last sealed node, whose slots these are, the open tail. There must be no tail."""
        self.blocks.pop()
        self.firsts.pop()
        self.tail_ids = ids
        self.tail_rows = rows
        self.tail_deleted = deleted
        self._start_bound(ids[0], rows[0])
        for entry_id, row in zip(ids, rows):
            self._bound(entry_id, row)
        self._tidy()

    def trim(self, length: int, drop: int, floor: int, slots: tuple[int, ...]) -> None:
        """Drop `drop` nodes from the head, the slots below `floor` of the next, and then `slots`."""
        for _ in range(drop):
            self._drop(self.head)
        if floor:
            self._mark(self.head, (1 << floor) - 1)
        self._mark_slots(slots)
        self.length = length
        self._first = None

    def delete(self, ids: list[int], slots: tuple[int, ...]) -> None:
        """Delete entries at `slots` whose IDs are `ids`, ascending; raises max_deleted_id."""
        if len(ids) == 1:
            ordinal, slot = slots
            self._mark(ordinal - self.first_ordinal + self.head, 1 << slot)
        else:
            self._mark_slots(slots)
        self.length -= len(ids)
        if ids[-1] > self.max_deleted_id:
            self.max_deleted_id = ids[-1]
        self._first = None

    def set_id(self, last_id: int, entries_added: int, max_deleted_id: int) -> None:
        """XSETID."""
        self.last_id = last_id
        self.entries_added = entries_added
        self.max_deleted_id = max_deleted_id
        if self.tail_ids and self.tail_ids[-1] > last_id:
            # IDs up to the deleted last slots are legal again, but no longer fit behind them: without a
            # bound the next add takes the careful path, which starts a node.
            self.tail_until = 0

    def copy(self, number: int) -> Stream:
        """The same stream under another number; groups are left to the caller. Sealed bytes are shared."""
        other = Stream(number)
        for name in self.__slots__:
            if name not in ("number", "groups"):
                setattr(other, name, getattr(self, name))
        other.blocks = [block.copy() if block is not None else None for block in self.blocks]
        other.firsts = self.firsts[:]
        other.tail_ids = self.tail_ids[:]
        other.tail_rows = self.tail_rows[:]
        other.idmp = self.idmp.copy() if self.idmp is not None else None
        return other

    def _mark_slots(self, slots: tuple[int, ...]) -> None:
        pairs = iter(slots)
        node, mask = -1, 0
        for ordinal, slot in zip(pairs, pairs):
            if ordinal != node:
                if mask:
                    self._mark(node - self.first_ordinal + self.head, mask)
                node, mask = ordinal, 0
            mask |= 1 << slot
        if mask:
            self._mark(node - self.first_ordinal + self.head, mask)

    def _mark(self, at: int, mask: int) -> None:
        """Mark slots of one node deleted; the node goes with its last live entry."""
        if at == len(self.blocks):
            self.removed_max = max(self.removed_max, self.tail_ids[-1])
            self.tail_deleted |= mask
            if self.tail_deleted.bit_count() == len(self.tail_ids):
                self._drop(at)
            return
        block = self.blocks[at]
        assert block is not None
        self.removed_max = max(self.removed_max, block.last)
        block.deleted |= mask
        if block.deleted.bit_count() == block.count:
            self._drop(at)

    def _drop(self, at: int) -> None:
        """Drop a whole node."""
        if at == len(self.blocks):
            self.removed_max = max(self.removed_max, self.tail_ids[-1])
            self._clear_tail()
            if at == self.head:
                self.first_ordinal += 1
        else:
            block = self.blocks[at]
            if block is not None:
                self.removed_max = max(self.removed_max, block.last)
            self.blocks[at] = None
            self.holes += 1
        self._tidy()

    def _clear_tail(self) -> None:
        self.tail_ids = []
        self.tail_rows = []
        self.tail_deleted = 0

    def _tidy(self) -> None:
        """No hole at the head, none at the end without a tail; give dropped positions back now and then."""
        blocks, firsts, head = self.blocks, self.firsts, self.head
        while head < len(blocks) and blocks[head] is None:
            head += 1
        self.first_ordinal += head - self.head
        self.holes -= head - self.head
        if not self.tail_ids:
            while len(blocks) > head and blocks[-1] is None:
                blocks.pop()
                firsts.pop()
                self.holes -= 1
        if head > COMPACT_AT and 2 * head > len(blocks) or head == len(blocks):
            del blocks[:head], firsts[:head]
            head = 0
        self.head = head

    def _positions(self, start: int, end: int, reverse: bool) -> Iterator[int]:
        """Positions of nodes that may hold IDs start..end; len(blocks) is the tail."""
        low = max(bisect_right(self.firsts, start, self.head) - 1, self.head)
        stop = bisect_right(self.firsts, end, self.head)
        last = len(self.blocks)
        with_tail = bool(self.tail_ids) and self.tail_ids[0] <= end
        if with_tail and self.tail_ids[0] <= start:
            low = stop = last
        span = range(low, stop)
        if reverse:
            if with_tail:
                yield last
            yield from reversed(span)
        else:
            yield from span
            if with_tail:
                yield last

    def check(self) -> None:
        """Assert what this module keeps true. O(entries); for tests and verify."""
        assert len(self.blocks) == len(self.firsts)
        assert self.head <= len(self.blocks)
        assert self.blocks.count(None) == self.head + self.holes
        if self.head < len(self.blocks):
            assert self.blocks[self.head] is not None
            assert self.tail_ids or self.blocks[-1] is not None
        before = -1
        length = 0
        nodes = 0
        for node in self.walk():
            ids = node.ids()
            assert ids[0] == node.first and ids[-1] == node.last and len(ids) == node.count
            assert len(node.rows()) == node.count
            assert before < ids[0] and all(a < b for a, b in zip(ids, ids[1:]))
            assert not node.deleted >> node.count
            assert node.live
            before = ids[-1]
            length += node.live
            nodes += 1
        assert length == self.length
        assert nodes == self.nodes()
        if self.tail_ids:
            assert len(self.tail_rows) == len(self.tail_ids)
            exact = self.tail_node().node_bytes()
            assert self.tail_until <= self.tail_ids[-1] >> 64 or self.tail_bound >= exact
            assert self.tail_bytes() == exact
        assert (
            self._first is None or not self.length or self._first == self.range(0, MAX, 1).ids()[0]
        )


def live_slots(deleted: int, start: int, stop: int) -> list[int]:
    """The slots start..stop-1 whose bit is not set."""
    return [slot for slot in range(start, stop) if not deleted >> slot & 1]


def _lowest_live(deleted: int) -> int:
    return (~deleted & (deleted + 1)).bit_length() - 1


def _highest_live(deleted: int, count: int) -> int:
    return (~deleted & ((1 << count) - 1)).bit_length() - 1


def _cut(low: int, high: int, left: int, reverse: bool) -> tuple[int, int]:
    """The first, or last, `left` of the slots low..high-1."""
    if high - low <= left:
        return low, high
    return (high - left, high) if reverse else (low, low + left)
