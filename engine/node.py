"""Nodes of a stream as decide, digest and checks look at them, and bounds of their size in Redis."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from tidelog.engine import listpack
from tidelog.engine.block import Block, Row

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


def rows_bytes_max(rows: Iterable[Row], count: int) -> int:
    """The same of `count` rows together, and quicker: no less than the sum of theirs."""
    size = len(SEPARATOR.join(chain.from_iterable(rows)))
    return size + (size >> 5) + ENTRY_BYTES_MAX * count


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


def live_slots(deleted: int, start: int, stop: int) -> list[int]:
    """The slots start..stop-1 whose bit is not set."""
    return [slot for slot in range(start, stop) if not deleted >> slot & 1]


def lowest_live(deleted: int) -> int:
    """The first slot whose bit is not set."""
    return (~deleted & (deleted + 1)).bit_length() - 1


def highest_live(deleted: int, count: int) -> int:
    """The last of `count` slots whose bit is not set."""
    return (~deleted & ((1 << count) - 1)).bit_length() - 1
