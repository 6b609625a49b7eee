"""Entries: the reply of a read, as a view over blocks that each API renders in its own form.

A view is made under the store's lock and rendered later without it. It refers to sealed blocks, whose bytes never
change, and copies the entries of the open tail. Deletions after it was made do not show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from tidelog.engine import idlist
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.streams.block import Block, EntryRow, Pair

# Entries that have the same field names in the same order: their IDs as `ms-seq`, the names, and the values of all
# entries, concatenated.
Columns = tuple[list[bytes], EntryRow, list[bytes]]


class BlockPart:
    """Slots start..stop-1 of a sealed block. `slots` lists the live ones if some are deleted; else it is None."""

    __slots__ = ("block", "start", "stop", "slots")

    def __init__(self, block: Block, start: int, stop: int, slots: list[int] | None) -> None:
        self.block, self.start, self.stop, self.slots = block, start, stop, slots

    def ids(self) -> list[int]:
        """IDs, ascending."""
        ids = self.block.decoded().ids()
        if self.slots is not None:
            return [ids[slot] for slot in self.slots]
        return ids[self.start : self.stop]

    def first_id(self) -> int:
        """The first ID."""
        slot = self.start if self.slots is None else self.slots[0]
        return self.block.decoded().id_at(slot)

    def rows(self) -> Sequence[EntryRow | None]:
        """Rows, in the order of the IDs."""
        decoded = self.block.decoded()
        if self.slots is not None:
            return [decoded.row(slot) for slot in self.slots]
        return decoded.rows(self.start, self.stop)

    def lacks(self, field: bytes) -> bool:
        """Whether certainly no entry has this field. Cheap; may be False where none has it."""
        decoded = self.block.decoded()
        return decoded.shape_of is None and field not in decoded.names

    def pairs(self) -> list[Pair]:
        """Entries in redis-py's form."""
        pairs = self.block.decoded().pairs(self.start, self.stop)
        if self.slots is not None:
            return [pairs[slot - self.start] for slot in self.slots]
        return pairs

    def columns(self) -> Columns | None:
        """The entries column by column; None if their field names differ."""
        decoded = self.block.decoded()
        if decoded.shape_of is not None:
            return None
        names, values = decoded.names, decoded.values
        width = len(names)
        if self.slots is None:
            start, stop = self.start, self.stop
            return decoded.texts(start, stop), names, values[start * width : stop * width]
        texts = decoded.texts()
        each = (values[slot * width : (slot + 1) * width] for slot in self.slots)
        return [texts[slot] for slot in self.slots], names, list(chain.from_iterable(each))

    def idlist(self) -> idlist.IdList:
        """IDs as an ID list."""
        if self.slots is not None:
            return idlist.pack(self.ids())
        return self.block.decoded().idlist(self.start, self.stop)


class RowsPart:
    """Entries as two lists: of the open tail, or collected one by one. A row of None: the entry is deleted."""

    __slots__ = ("_ids", "_rows")

    def __init__(self, ids: list[int], rows: Sequence[EntryRow | None]) -> None:
        self._ids, self._rows = ids, rows

    def ids(self) -> list[int]:
        """IDs, in the order given."""
        return self._ids

    def first_id(self) -> int:
        """The first ID."""
        return self._ids[0]

    def rows(self) -> Sequence[EntryRow | None]:
        """Rows, in the order of the IDs."""
        return self._rows

    def lacks(self, field: bytes) -> bool:
        """Whether certainly no entry has this field. May be False if it is a value."""
        return field not in chain.from_iterable(filter(None, self._rows))

    def pairs(self) -> list[Pair]:
        """Entries in redis-py's form; (ID text, None) for a deleted entry."""
        texts = [b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX) for entry_id in self._ids]
        rows = self._rows
        if None not in rows:
            widths = set(map(len, rows))  # type: ignore[arg-type]
            if widths == {4}:
                return [(text, {a: b, c: d}) for text, (a, b, c, d) in zip(texts, rows)]  # type: ignore[misc]
            if widths == {2}:
                return [(text, {a: b}) for text, (a, b) in zip(texts, rows)]  # type: ignore[misc]
        return [
            (text, None if row is None else dict(zip(row[::2], row[1::2])))
            for text, row in zip(texts, rows)
        ]

    def columns(self) -> Columns | None:
        """The entries column by column; None if their field names differ, an entry is deleted or there are none."""
        rows = self._rows
        if not rows or None in rows:
            return None
        width = len(rows[0])  # type: ignore[arg-type]
        flat = list(chain.from_iterable(rows))  # type: ignore[arg-type]
        names: EntryRow = tuple(flat[:width:2])
        if set(map(len, rows)) != {width} or flat[::2] != flat[:width:2] * len(rows):  # type: ignore[arg-type]
            return None
        return [b"%d-%d" % (id >> 64, id & SEQ_MAX) for id in self._ids], names, flat[1::2]

    def idlist(self) -> idlist.IdList:
        """IDs as an ID list."""
        ids = self._ids
        return idlist.pack_one(ids[0]) if len(ids) == 1 else idlist.pack(ids)


Part = BlockPart | RowsPart


class Entries:
    """A run of stream entries. Immutable; any thread may render it, more than once.

    parts       in reply order; each is ascending         reverse     read each part backwards

    Every method may raise CorruptBlock, except `len`.
    """

    __slots__ = ("parts", "reverse", "_length")

    def __init__(self, parts: Sequence[Part], length: int, reverse: bool = False) -> None:
        self.parts = parts
        self.reverse = reverse
        self._length = length

    @staticmethod
    def of(entries: Sequence[tuple[int, EntryRow | None]]) -> Entries:
        """Entries collected one by one: (ID, row) of each, with a row of None for a deleted entry."""
        part = RowsPart([entry_id for entry_id, _ in entries], [row for _, row in entries])
        return Entries((part,), len(entries))

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return self._length > 0

    def __iter__(self) -> Iterator[tuple[int, EntryRow | None]]:
        for part in self.parts:
            both = list(zip(part.ids(), part.rows()))
            yield from reversed(both) if self.reverse else both

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entries) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Entries({list(self)!r})"

    def first_id(self) -> int:
        """The lowest ID. Only for entries that are not empty and not reversed."""
        return self.parts[0].first_id()

    def ids(self) -> list[int]:
        """The IDs, in reply order."""
        if len(self.parts) == 1 and not self.reverse:
            return list(self.parts[0].ids())
        each = (part.ids() for part in self.parts)
        return list(
            chain.from_iterable(ids[::-1] for ids in each) if self.reverse else chain(*each)
        )

    def idlist(self) -> idlist.IdList:
        """The IDs in reply order as an ID list. Makes no int per ID where a block stores them as a run."""
        parts = self.parts
        if not self.reverse:
            if len(parts) == 1:
                return parts[0].idlist()
            packed = [part.idlist() for part in parts]
            if all(each.__class__ is bytes for each in packed):
                return b"".join(packed)  # type: ignore[arg-type]
        return idlist.pack(self.ids())

    def pairs(self) -> list[Pair]:
        """The entries as redis-py returns them: [(ID text, {field: value}), ...]; the last of equal fields wins."""
        if len(self.parts) == 1 and not self.reverse:
            return self.parts[0].pairs()
        each = (part.pairs() for part in self.parts)
        return list(chain.from_iterable(p[::-1] for p in each) if self.reverse else chain(*each))


class ClaimedEntries(Entries):
    """The reply of a read with CLAIM (spec 7.2.4): each entry also has its idle ms and its earlier deliveries.

    idle, deliveries    columns of ints, one per entry; 0 and 0 for a new entry
    """

    __slots__ = ("idle", "deliveries")

    def __init__(
        self, parts: Sequence[Part], length: int, idle: Sequence[int], deliveries: Sequence[int]
    ) -> None:
        super().__init__(parts, length)
        self.idle = idle
        self.deliveries = deliveries


NO_ENTRIES: Final = Entries((), 0)
