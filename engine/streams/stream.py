"""Stream: entries in nodes, their counters, the consumer groups and the dedup tables.

A node is a run of slots, one for each entry ever added to it; a deleted entry keeps its slot until the node is dropped
(spec 2.4). All nodes but the last are sealed blocks; the last is the open *tail*, two lists. When the tail's last live
entry is deleted, the stream has no tail until the next XADD. Decide determines whether an XADD starts a node; this
module knows no limits, and none of its mutating methods reads an entry's bytes or fails (except on cold nodes, below).

    cold  + blocks   [ dropped... | B | B | hole | B ]  + tail     firsts[i] = first slot's ID of blocks[i]
                       ^0           ^head                          ordinal of blocks[i] = first_ordinal + i - head

A node dropped between live nodes leaves a hole (None), so that the ordinals of the others do not change.

A checkpoint stores sealed nodes in pages (engine.streams.pages). Nodes that are certainly stored can be *released*:
the first nodes, those below `first_ordinal`, are then only in `cold` and are read from the checkpoint. No reply and
no ordinal depends on which nodes are resident. A method that reads or changes a cold node may read the checkpoint,
and raises CorruptBlock if that row is damaged. Apply raises it only in a replay: in a live unit, decide and `prepare`
have read what apply needs. Two ordinals say what a checkpoint has:

    handed_stop    nodes below it were handed to a checkpoint, so their deletions are recorded in `marks`
    stored_stop    nodes below it are in the committed checkpoint, except those from `cut` on

Invariants: slot IDs ascend strictly inside a node; the first slot of a node has a greater ID than every live entry
before it (deleted slots before it may have greater IDs, since XSETID makes those legal again); every node has a live
entry; the first node is live (blocks[head], if nothing is cold), and so is the last one if there is no tail; length =
number of live entries; cold ends at first_ordinal, and is None if no cold node is live. `check()` verifies all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import reduce
from itertools import chain, repeat
from operator import or_
from typing import Final

from tidelog.engine.cold import ColdStore
from tidelog.engine.groups.group import Group
from tidelog.engine.idlist import EMPTY, IdList, last_id, unpack
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.streams import listpack
from tidelog.engine.streams.block import Block, EntryRow, encode
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.marks import Marks
from tidelog.engine.streams.node import (
    COUNTERS_MAX,
    MS_DIFF_MAX,
    NO_SEQ,
    NO_SLOT,
    NODE_BYTES_BASE,
    SEQ_LARGE_BYTES,
    SEQ_SMALL_MAX,
    Node,
    highest_live,
    lowest_live,
    row_bytes_max,
    rows_bytes_max,
)
from tidelog.engine.streams.pages import ColdPages
from tidelog.engine.untracked import untracked

COUNTER_MAX: Final = (1 << 63) - 1
LOADED: Final = 1
# delete the positions of dropped nodes from `blocks` when there are this many
COMPACT_AT: Final = 64
NEVER_HANDED: Final = 0  # no handover yet; every generation is greater
NO_CUT: Final = 1 << 62
# of a deleted slot: the mask of a node has a bit for each, and a record that lies must not take all memory for one
SLOT_MAX: Final = 1 << 27


class Stream:
    """The value of a stream key. Functions that return entries are in engine.streams.reading.

    Only apply, the modules beside this one and the deciders of XADD use the attributes that begin with `tail_`.
    """

    __slots__ = (
        *("number", "length", "last_id", "max_deleted_id", "entries_added", "groups", "idmp"),
        "removed_max",
        *("first_ordinal", "head", "holes", "blocks", "firsts"),
        *("tail_ids", "tail_rows", "tail_deleted"),
        *("tail_bound", "tail_until", "tail_small", "tail_body", "tail_counted", "first_known"),
        *("mark", "handed_gen", "handed_stop", "stored_stop", "cold", "marks", "cut", "next_group"),
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.length = 0
        self.last_id = 0
        self.max_deleted_id = 0
        self.entries_added = 0
        # No entry above this ID was ever removed. The bound never falls. Apply does not know which IDs a removal
        # removes, so a removal raises the bound to the ID of the last slot in the node. Users cannot see the bound, and
        # it is not part of the digest.
        self.removed_max = 0
        self.groups: dict[bytes, Group] = untracked({})
        self.idmp: Idmp | None = None  # None: never used, all settings default
        self.first_ordinal = 0  # of blocks[head], or of the tail
        self.head = 0
        self.holes = 0  # number of Nones in blocks after the head
        self.blocks: list[Block | None] = untracked([])
        self.firsts: list[int] = untracked([])
        self.tail_ids: list[int] = untracked([])
        self.tail_rows: list[EntryRow] = untracked([])
        self.tail_deleted = 0
        # Caches. tail_bound: an upper bound of the tail's size in Redis, valid for entries before ms `tail_until`. An
        # entry whose seq is above `tail_small` counts SEQ_LARGE_BYTES more in it.
        # tail_body: the exact size of the first `tail_counted` slots, without the two counters. first_known: the ID of
        # the first live entry, or None if not known.
        self.tail_bound = 0
        self.tail_until = 0
        self.tail_small = SEQ_SMALL_MAX
        self.tail_body = 0
        self.tail_counted = 0
        self.first_known: int | None = None
        # State for checkpoints. engine.keys.changes and engine.keys.freeze also write these attributes.
        self.mark = 0  # generation of the last change; 0: no change since the load
        # generation of the last handover to a checkpoint; >= 1 after a load
        self.handed_gen = NEVER_HANDED
        self.handed_stop = 0
        self.stored_stop = 0
        self.cut = NO_CUT  # the stream no longer has the stored nodes from this ordinal on
        self.cold: ColdPages | None = None
        self.marks: Marks | None = None  # created with the first handover
        self.next_group = 1  # number of the next group
        untracked(self)

    # --- finding entries

    def first_id(self) -> int:
        """ID of the first live entry, 0 if there is none."""
        if not self.length:
            return 0
        if self.first_known is None:
            if self.cold is not None:
                self.first_known = self.cold.first_live()
            elif self.head < len(self.blocks):
                block = self.blocks[self.head]
                assert block is not None
                slot = lowest_live(block.deleted)
                self.first_known = block.decoded().id_at(slot) if slot else self.firsts[self.head]
            else:
                self.first_known = self.tail_ids[lowest_live(self.tail_deleted)]
        return self.first_known

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
        if entry_id == self.first_known and self.cold is None:
            # The entry is the first live one, so no search is needed. This is the usual case, because consumers mostly
            # take entries in order.
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

    def get(self, entry_id: int) -> EntryRow | None:
        """The row of an entry, or None. May raise CorruptBlock."""
        found = self.slot_of(entry_id)
        if found is None:
            return None
        block, slot = found
        return self.tail_rows[slot] if block is None else block.decoded().row(slot)

    def slot_of(self, entry_id: int) -> tuple[Block | None, int] | None:
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

    # --- nodes

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

    # --- the tail's size

    def tail_bytes(self) -> int:
        """The exact size of the open tail in Redis, in bytes. Measures each entry only once, and tightens the bound."""
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

    def _start_bound(self, first: int, row: EntryRow) -> None:
        """Initialise the size bound for a node that starts with this entry."""
        self.tail_counted = 0
        self.tail_bound = NODE_BYTES_BASE + row_bytes_max(row)
        self.tail_until = (first >> 64) + MS_DIFF_MAX + 1
        # If the node's first seq is large, the small seq of a later ms has a large diff from it.
        self.tail_small = SEQ_SMALL_MAX if first & SEQ_MAX <= SEQ_SMALL_MAX else NO_SEQ

    # --- changing: only apply calls these

    def append(self, entry_id: int, row: EntryRow) -> None:
        """Add an entry to the open tail."""
        self.tail_ids.append(entry_id)
        self.tail_rows.append(row)
        self.tail_bound += row_bytes_max(row)
        if entry_id & SEQ_MAX > self.tail_small:
            self.tail_bound += SEQ_LARGE_BYTES
        self.last_id = entry_id
        self.length += 1
        if self.entries_added < COUNTER_MAX:
            self.entries_added += 1

    def start_node(self, entry_id: int, row: EntryRow) -> None:
        """Add an entry to a new node. Seals the tail if there is one."""
        if self.tail_ids:
            self.seal_tail()
        self._start_bound(entry_id, row)
        self.append(entry_id, row)

    def seal_tail(self) -> None:
        """Turn the open tail into a block. The stream must have a tail, and has none afterwards."""
        ids = self.tail_ids
        data = encode(ids, self.tail_rows)
        self.blocks.append(Block(data, len(ids), ids[-1], self.tail_deleted))
        self.firsts.append(ids[0])
        self._clear_tail()

    def append_many(
        self,
        first: int,
        head: tuple[EntryRow, ...],
        blocks: tuple[tuple[int, bytes], ...],
        tail: tuple[EntryRow, ...],
    ) -> None:
        """Add entries with IDs first, first+1, ...: `head` to the open tail, `blocks` ((slots, sealed bytes)) as full
        nodes, `tail` to a new open node.
        """
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

    def _extend(self, first: int, rows: tuple[EntryRow, ...]) -> None:
        """Append rows to the tail. The caller updates the counters."""
        stop = first + len(rows)
        self.tail_ids.extend(range(first, stop))
        self.tail_rows.extend(rows)
        self.tail_bound += rows_bytes_max(rows, len(rows))
        if (first | stop - 1) & SEQ_MAX > self.tail_small:
            self.tail_bound += SEQ_LARGE_BYTES * len(rows)

    def reopen(self, ids: list[int], rows: list[EntryRow], deleted: int) -> None:
        """Make the last sealed node the open tail; the arguments are its slots. The stream must have no tail."""
        if self.head < len(self.blocks):
            self.blocks.pop()
            self.firsts.pop()
        else:
            assert self.cold is not None
            self.cold.pop()
            self._after_cold()
        self._end_nodes()
        self.restore_tail(ids, rows, deleted)
        self._tidy()

    def load_node(self, ids: list[int], rows: list[EntryRow], deleted: int) -> None:
        """Add a sealed node with these slots behind all others, from another system's dump. The counters stay, except
        the length. The stream must have no tail.
        """
        self.blocks.append(Block(encode(ids, rows), len(ids), ids[-1], deleted))
        self.firsts.append(ids[0])
        self.length += len(ids) - deleted.bit_count()

    def restore_tail(
        self, ids: list[int], rows: list[EntryRow], deleted: int, void: bool = False
    ) -> None:
        """Set the open tail to these slots. void: leave it without a size bound, as `set_id` does."""
        self.tail_ids = untracked(ids)
        self.tail_rows = untracked(rows)
        self.tail_deleted = deleted
        self._start_bound(ids[0], rows[0])
        for entry_id, row in zip(ids, rows):
            self.tail_bound += row_bytes_max(row)
            if entry_id & SEQ_MAX > self.tail_small:
                self.tail_bound += SEQ_LARGE_BYTES
        if void:
            self.tail_until = 0

    def trim(self, length: int, drop: int, floor: int, slots: tuple[int, ...]) -> None:
        """Drop `drop` nodes from the head, then the slots below `floor` of the next node, then `slots` (ordinal, slot,
        ...). length: the stream's length afterwards.
        """
        if drop and self.cold is not None:
            dropped, last = self.cold.drop(drop)
            drop -= dropped
            self.removed_max = max(self.removed_max, last)
            self._after_cold()
            self._tidy()
        for _ in range(drop):
            self._drop(self.head)
        if floor:
            first = self.first_ordinal if self.cold is None else self.cold.head
            self._mark(first, (1 << _checked(floor)) - 1)
        self._mark_slots(slots)
        self.length = length
        self.first_known = None

    def delete(self, ids: IdList, slots: tuple[int, ...]) -> None:
        """Delete the entries of an ascending ID list. slots: where they are, (ordinal, slot, ...).

        Raises max_deleted_id to the last of them if it was lower.
        """
        last = last_id(ids)
        if last > self.max_deleted_id:
            self.max_deleted_id = last
        self.first_known = None
        if len(slots) == 2:
            self.length -= 1
            self._mark(slots[0], 1 << _checked(slots[1]), last)
        else:
            self.length -= len(slots) >> 1
            self._mark_slots(slots, ids)

    def set_id(self, last_id: int, entries_added: int, max_deleted_id: int) -> None:
        """Apply XSETID."""
        self.last_id = last_id
        self.entries_added = entries_added
        self.max_deleted_id = max_deleted_id
        if self.tail_ids and self.tail_ids[-1] > last_id:
            # The tail ends in deleted slots above last_id. A new ID between last_id and those slots is legal, but it
            # cannot follow them in the same node. With tail_until 0 the next XADD takes the exact path, which starts a
            # node.
            self.tail_until = 0

    def copy(self, number: int) -> Stream:
        """A copy with another number, all of it resident, without groups. Shares the sealed bytes. May raise
        CorruptBlock.
        """
        other = Stream(number)
        for name in Stream.__slots__:
            if name not in _OWN:
                setattr(other, name, getattr(self, name))
        blocks = [block.copy() if block is not None else None for block in self.blocks]
        other.blocks = untracked(blocks)
        other.firsts = untracked(self.firsts[:])
        if self.cold is not None:
            other._bring_in(self.cold)
        other.tail_ids = untracked(self.tail_ids[:])
        other.tail_rows = untracked(self.tail_rows[:])
        other.idmp = self.idmp.copy() if self.idmp is not None else None
        return other

    # --- memory: stored nodes need not be resident

    def settle(self, committed: int) -> None:
        """Note that a checkpoint has committed. committed: the newest generation that it holds."""
        if self.handed_gen <= committed:
            self.stored_stop = self.handed_stop

    def release(self, store: ColdStore, stop: int) -> int:
        """Evict the sealed nodes below ordinal `stop` that are certainly stored. Returns the number evicted."""
        count = min(stop, self.stored_stop) - self.first_ordinal
        if count <= 0:
            return 0
        blocks, firsts, head = self.blocks, self.firsts, self.head
        gone = [block for block in blocks[head : head + count] if block is not None]
        if self.cold is None:
            assert self.marks is not None
            self.cold = ColdPages(
                *(store, self.number, self.marks, self.first_ordinal, firsts[head]),
                *(self.first_ordinal, 0, 0),
            )
        cold = self.cold
        cold.stop += count
        cold.nodes += len(gone)
        cold.last_id = max([cold.last_id, *[block.last for block in gone]])
        del blocks[: head + count], firsts[: head + count]
        self.head = 0
        self.holes -= count - len(gone)
        self.first_ordinal += count
        return len(gone)

    def load_all(self) -> None:
        """Load all nodes into memory. May raise CorruptBlock."""
        if self.cold is not None:
            self._bring_in(self.cold)
            self.cold = None

    def _bring_in(self, cold: ColdPages) -> None:
        nodes = list(cold.all_blocks())
        self.firsts[: self.head] = [first for first, _ in nodes]
        self.blocks[: self.head] = [block for _, block in nodes]
        self.head = 0
        self.holes = self.blocks.count(None)
        self.first_ordinal = cold.head

    def _after_cold(self) -> None:
        """Update first_ordinal and `cold` after cold nodes were removed."""
        cold = self.cold
        assert cold is not None
        self.first_ordinal = cold.stop
        if not cold.nodes:
            self.cold = None

    def _end_nodes(self) -> None:
        """Lower the stored bounds after sealed nodes at the end were removed. Their ordinals will be used again."""
        end = self.first_ordinal + len(self.blocks) - self.head
        if end < self.handed_stop:
            self.handed_stop = end
            self.stored_stop = min(self.stored_stop, end)
            self.cut = min(self.cut, end)
            assert self.marks is not None
            self.marks.cut(end)

    # --- helpers of the changes

    def _mark_slots(self, slots: tuple[int, ...], ids: IdList = EMPTY) -> None:
        """Mark (ordinal, slot, ordinal, slot, ...) deleted. ids: the IDs of the slots, if known."""
        ordinals, places = slots[::2], slots[1::2]
        # Only cold nodes are found by an ID.
        known = unpack(ids) if ids and ordinals[0] < self.first_ordinal else None
        start = 0
        while start < len(ordinals):
            stop = bisect_right(ordinals, ordinals[start], start)
            low, count = places[start], stop - start
            _checked(max(places[start:stop]))
            if places[stop - 1] - low == count - 1:  # consecutive slots, the common case
                mask = (1 << count) - 1 << low
            else:
                mask = reduce(or_, map((1).__lshift__, places[start:stop]))
            self._mark(ordinals[start], mask, None if known is None else known[start])
            start = stop

    def _mark(self, ordinal: int, mask: int, entry_id: int | None = None) -> None:
        """Mark slots of one node deleted. Drops the node if no live entry is left."""
        at = ordinal - self.first_ordinal + self.head
        if at == len(self.blocks):
            if mask >> len(self.tail_ids):
                raise ValueError(NO_SLOT)
            last = self.tail_ids[-1]
            if last > self.removed_max:
                self.removed_max = last
            self.tail_deleted = deleted = self.tail_deleted | mask
            if deleted.bit_count() == len(self.tail_ids):
                self._drop(at)
            return
        if at < self.head:
            assert self.cold is not None
            last = self.cold.mark(ordinal, mask, entry_id)
            self.removed_max = max(self.removed_max, last)
            self._after_cold()
            self._tidy()
            return
        block = self.blocks[at]
        assert block is not None
        if mask >> block.count:
            raise ValueError(NO_SLOT)
        if block.last > self.removed_max:
            self.removed_max = block.last
        block.deleted = deleted = block.deleted | mask
        if ordinal < self.handed_stop:
            assert self.marks is not None
            self.marks.now[ordinal] = (self.firsts[at], deleted)
        if deleted.bit_count() == block.count:
            if at == self.head and self.cold is None and self.marks is not None:
                self.marks.now.pop(ordinal, None)  # not needed: the head moves past this node
            self._drop(at)

    def _drop(self, at: int) -> None:
        """Drop a resident node."""
        if at == len(self.blocks):
            self.removed_max = max(self.removed_max, self.tail_ids[-1])
            self._clear_tail()
            if at == self.head and self.cold is None:
                self.first_ordinal += 1
        else:
            block = self.blocks[at]
            if block is not None:
                self.removed_max = max(self.removed_max, block.last)
            self.blocks[at] = None
            self.holes += 1
        self._tidy()

    def _clear_tail(self) -> None:
        self.tail_ids = untracked([])
        self.tail_rows = untracked([])
        self.tail_deleted = 0
        self.tail_until = 0

    def _tidy(self) -> None:
        """Remove holes at the head, and at the end if there is no tail. Compacts `blocks` now and then."""
        blocks, firsts, head = self.blocks, self.firsts, self.head
        if self.cold is None:
            while head < len(blocks) and blocks[head] is None:
                head += 1
            self.first_ordinal += head - self.head
            self.holes -= head - self.head
            self.head = head
        if not self.tail_ids:
            if len(blocks) > head and blocks[-1] is None:
                while len(blocks) > head and blocks[-1] is None:
                    blocks.pop()
                    firsts.pop()
                    self.holes -= 1
                self._end_nodes()
            if len(blocks) == head and self.cold is not None:
                self.cold.tidy_end()
                self._after_cold()
                self._end_nodes()
        if head > COMPACT_AT and 2 * head > len(blocks) or head == len(blocks):
            del blocks[:head], firsts[:head]
            self.head = 0

    def check(self) -> None:
        """Assert the invariants of this module. O(entries); for tests and verify."""
        assert len(self.blocks) == len(self.firsts)
        assert self.head <= len(self.blocks)
        assert self.blocks.count(None) == self.head + self.holes
        if self.head < len(self.blocks):
            assert self.cold is not None or self.blocks[self.head] is not None
            assert self.tail_ids or self.blocks[-1] is not None
        if self.cold is not None:
            assert self.cold.nodes > 0
            assert self.cold.head < self.cold.stop == self.first_ordinal <= self.stored_stop
        assert self.stored_stop <= self.handed_stop <= self.cut
        before = -1
        first = length = 0
        nodes = 0
        for node in self.walk():
            ids = node.ids()
            assert ids[0] == node.first and ids[-1] == node.last and len(ids) == node.count
            assert len(node.rows()) == node.count
            assert before < ids[0] and all(a < b for a, b in zip(ids, ids[1:]))
            assert not node.deleted >> node.count
            assert node.live
            before = ids[highest_live(node.deleted, node.count)]
            first = first or ids[lowest_live(node.deleted)]
            length += node.live
            nodes += 1
        assert length == self.length
        assert nodes == self.nodes()
        if self.tail_ids:
            assert len(self.tail_rows) == len(self.tail_ids)
            exact = self.tail_node().node_bytes()
            assert self.tail_until <= self.tail_ids[-1] >> 64 or self.tail_bound >= exact
            assert self.tail_bytes() == exact
        else:
            assert not self.tail_until
        assert not self.length or self.first_known in (None, first)


def _checked(slot: int) -> int:
    if slot > SLOT_MAX:
        raise ValueError(f"no node has a slot {slot}")
    return slot


# Attributes that `copy` sets itself instead of copying them.
_OWN: Final = frozenset(
    ("number", "groups", "mark", "handed_gen", "handed_stop", "stored_stop", "cut", "cold", "marks")
)
