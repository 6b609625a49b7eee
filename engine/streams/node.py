"""Node: one node of a stream, as decide, digest and checks read it; and upper bounds of its size in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from tidelog.engine.streams import listpack
from tidelog.engine.streams.block import Block, EntryRow

# `tail_bound` is an upper bound of the tail's size in Redis; every XADD updates it, so it must be cheap. It counts for
# an element: its length; 2 for encoding and backlen (the two bytes of SEPARATOR); and 1/32 of the row for longer
# headers. It counts for an entry: flags 2, ms diff 4, seq diff 3, numfields 2, lp-count 2, and 2 for the last element,
# which no separator follows. The bound is valid while ms diffs are at most MS_DIFF_MAX, that is, before `tail_until`;
# after that, sizes are computed exactly.
SEPARATOR: Final = b"\0\0"
ENTRY_BYTES_MAX: Final = 15
MS_DIFF_MAX: Final = 32767
SEQ_SMALL_MAX: Final = 4095  # a diff of two seqs up to SEQ_SMALL_MAX takes 3 bytes
SEQ_LARGE_BYTES: Final = 7  # any other takes up to this many bytes more
NO_SEQ: Final = -1  # every seq is above it
COUNTERS_MAX: Final = 20  # `count` and `deleted`
NODE_BYTES_BASE: Final = 20 + COUNTERS_MAX  # plus header, EOF, numfields, terminator
NO_SLOT: Final = "a record deletes entries that their node does not have"


def row_bytes_max(row: EntryRow) -> int:
    """An upper bound of a row's bytes in a node, if its diffs are small."""
    size = len(SEPARATOR.join(row))
    return size + (size >> 5) + ENTRY_BYTES_MAX


def rows_bytes_max(rows: Iterable[EntryRow], count: int) -> int:
    """An upper bound of the bytes of `count` rows together: `row_bytes_max` of all rows, but faster."""
    size = len(SEPARATOR.join(chain.from_iterable(rows)))
    return size + (size >> 5) + ENTRY_BYTES_MAX * count


class Node:
    """One node. `block` is None for the open tail."""

    __slots__ = ("ordinal", "count", "deleted", "first", "last", "block", "_ids", "_rows")

    def __init__(
        self,
        ordinal: int,
        deleted: int,
        first: int,
        last: int,
        block: Block | None,
        ids: list[int],
        rows: list[EntryRow],
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
        """The number of entries that are not deleted."""
        return self.count - self.deleted.bit_count()

    def ids(self) -> list[int]:
        """IDs of all slots. May raise CorruptBlock."""
        return self._ids if self.block is None else self.block.decoded().ids()

    def rows(self) -> list[EntryRow]:
        """Rows of all slots. May raise CorruptBlock."""
        return self._rows if self.block is None else self.block.decoded().rows()

    def columns(self) -> tuple[EntryRow, Sequence[bytes]] | None:
        """(fields, values of all slots one after the other) of a sealed node whose entries have the same fields.

        None for any other node. May raise CorruptBlock.
        """
        if self.block is None:
            return None
        return self.block.decoded().columns()

    def live_slots(self) -> list[int]:
        """Slots that are not deleted, ascending."""
        if not self.deleted:
            return list(range(self.count))
        return live_slots(self.deleted, 0, self.count)

    def node_bytes(self) -> int:
        """The exact size of this node in Redis, in bytes. May raise CorruptBlock."""
        return self.bytes_of(self.ids(), self.rows())

    def bytes_of(self, ids: list[int], rows: list[EntryRow]) -> int:
        """As `node_bytes`, for a caller that has the IDs and rows of all slots already."""
        body = listpack.body_size(ids, rows)
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
