"""The pending entries of a group by ID: chunks of (IDs, times, owners, counts), and their queries and changes.

Inside, an ID is represented by its key (`engine.idlist`), or by itself in the wide form. Every method that loads a
chunk may raise CorruptBlock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final

from tidelog.engine.groups.chunk_rows import Chunk, Column
from tidelog.engine.groups.chunks import LOAD, Order
from tidelog.engine.idlist import (
    KEY_BASE,
    KEY_SEQ_MASK,
    MS_BITS,
    SEQ_BITS,
    WIDE_BITS,
    is_narrow,
    key_of,
)

KEY_END: Final = KEY_BASE  # above every key

PendingEntry = tuple[int, int, int, int]  # ID, delivery time, owner, delivery count


class IdOrder(Order):
    """All entries of a group in ascending ID order, with time, owner and delivery count."""

    __slots__ = ()

    CODES: ClassVar[str] = "qqIq"

    # --- IDs and keys

    def key(self, id: int) -> int | None:
        """The key of an ID, or None if it has none and so cannot be pending."""
        if self.new is list:
            return id
        return None if id & WIDE_BITS else key_of(id)

    def key_from(self, id: int) -> int:
        """The smallest key whose ID is at least `id`."""
        wide = self.new is list
        if wide or is_narrow(id):
            return id if wide else key_of(id)
        ms = (id >> 64) + 1  # the seq is too great for a key, so the next key has the next ms
        return KEY_END if ms >> MS_BITS else key_of(ms << 64)

    def key_to(self, id: int) -> int:
        """The greatest key whose ID is at most `id`."""
        wide = self.new is list
        if wide or is_narrow(id):
            return id if wide else key_of(id)
        ms = id >> 64
        return KEY_END - 1 if ms >> MS_BITS else (ms << SEQ_BITS | KEY_SEQ_MASK) - KEY_BASE

    def ids_of(self, column: Column) -> Column:
        """The IDs of a column of keys."""
        if self.new is list:
            return column
        return [key >> SEQ_BITS << 64 | key & KEY_SEQ_MASK for key in map(KEY_BASE.__add__, column)]

    # --- looking

    def holds(self, key: int) -> bool:
        """Whether the entry with this key is pending."""
        i = bisect_left(self.tops, key)
        if i == len(self.tops):
            return False
        ids = (self.chunks[i] or self.load(i))[0]
        return ids[bisect_left(ids, key)] == key

    def get(self, key: int) -> tuple[int, int, int] | None:
        """(time, owner, count) of the entry with this key, or None."""
        i = bisect_left(self.tops, key)
        if i == len(self.tops):
            return None
        ids, times, owners, counts = self.chunks[i] or self.load(i)
        j = bisect_left(ids, key)
        if ids[j] != key:
            return None
        return times[j], owners[j], counts[j]

    def those_of(self, want: Iterable[int]) -> array[int]:
        """The keys of `want` that are pending, ascending, each once. Not for the wide form."""
        found = array("q")
        tops, chunks = self.tops, self.chunks
        end = len(tops)
        for key in sorted(set(want)):
            i = bisect_left(tops, key)
            if i == end:
                break
            ids = (chunks[i] or self.load(i))[0]
            if ids[bisect_left(ids, key)] == key:
                found.append(key)
        return found

    def are_held(self, want: Column, owner: int, count: int) -> bool:
        """Whether the entries of `want` are contiguous and all have this owner and delivery count."""
        parts = self.place_run(want)
        if parts is None:
            return False
        for i, j, k in parts:
            _, _, owners, counts = self.chunks[i] or self.load(i)
            if owners[j:k].count(owner) != k - j or counts[j:k].count(count) != k - j:
                return False
        return True

    def slices(self, key: int) -> Iterator[Chunk]:
        """The entries from a key on, ascending, as columns, chunk by chunk."""
        i = bisect_left(self.tops, key)
        if i == len(self.tops):
            return
        chunk = self.chunks[i] or self.load(i)
        j = bisect_left(chunk[0], key)
        yield tuple([column[j:] for column in chunk]) if j else chunk
        for at in range(i + 1, len(self.chunks)):
            yield self.chunks[at] or self.load(at)

    def page(self, low: int, high: int, count: int, time_max: int | None) -> list[PendingEntry]:
        """Up to `count` rows with keys low..high, ascending; only those delivered at `time_max` (unix ms) or before,
        unless it is None.
        """
        page: list[PendingEntry] = []
        for ids, times, owners, counts in self.slices(low):
            if ids[0] > high:
                break
            if ids[-1] > high:
                ids = ids[: bisect_right(ids, high)]
            if time_max is None:
                ids = ids[: count - len(page)]
            elif min(times) > time_max:
                continue
            rows: Iterable[PendingEntry] = zip(self.ids_of(ids), times, owners, counts)
            if time_max is not None:
                rows = [row for row in rows if row[1] <= time_max]
            page += rows
            if len(page) >= count:
                return page[:count]
        return page

    def rows_at(self, wanted: Column) -> Iterator[PendingEntry]:
        """The rows of entries that are all pending, given by their keys, ascending."""
        tops = self.tops
        at = 0
        for key, entry_id in zip(wanted, self.ids_of(wanted)):
            if key > tops[at]:
                at = bisect_left(tops, key, at)
            ids, times, owners, counts = self.chunks[at] or self.load(at)
            j = bisect_left(ids, key)
            yield entry_id, times[j], owners[j], counts[j]

    def entries(self) -> Iterator[PendingEntry]:
        """All rows, ascending. Keeps at most one chunk in memory at a time that was not there."""
        for at in range(len(self.chunks)):
            ids, times, owners, counts = self.peek(at)
            yield from zip(self.ids_of(ids), times, owners, counts)

    # --- changing

    def put(self, key: int, time: int, owner: int, count: int) -> tuple[int, int] | None:
        """Insert or replace an entry. Return its previous (time, owner), or None if it was not pending."""
        tops = self.tops
        if not tops or key > tops[-1]:
            if tops and (not self.serials[-1] or self.reopen()):
                ids, times, owners, counts = self.chunks[-1] or self.load(-1)
                if len(ids) < LOAD:
                    ids.append(key)
                    times.append(time)
                    owners.append(owner)
                    counts.append(count)
                    tops[-1] = key
                    return None
            self.chunks.append(
                (self.new((key,)), array("q", (time,)), array("I", (owner,)), array("q", (count,)))
            )
            self.serials.append(0)
            tops.append(key)
            return None
        i = bisect_left(tops, key)
        chunk = self.chunks[i] or self.load(i)
        ids, times, owners, counts = self.own(i) if self.serials[i] else chunk
        j = bisect_left(ids, key)
        if ids[j] == key:
            old = times[j], owners[j]
            times[j], owners[j], counts[j] = time, owner, count
            return old
        ids.insert(j, key)
        times.insert(j, time)
        owners.insert(j, owner)
        counts.insert(j, count)
        if len(ids) >= 2 * LOAD:
            self.split(i)
        return None

    def take(self, key: int) -> tuple[int, int] | None:
        """Remove an entry. Return its (time, owner), or None if it is not pending."""
        tops = self.tops
        i = bisect_left(tops, key)
        if i == len(tops):
            return None
        ids, times, owners, counts = self.chunks[i] or self.load(i)
        j = bisect_left(ids, key)
        if ids[j] != key:
            return None
        old = times[j], owners[j]
        if len(ids) == 1:
            if self.serials[i]:
                self.shelf.dropped.append(self.serials[i])
            del self.chunks[i], tops[i], self.serials[i]
        else:
            if self.serials[i]:
                ids, times, owners, counts = self.own(i)
            del ids[j], times[j], owners[j], counts[j]
            tops[i] = ids[-1]
        return old

    def rewrite(
        self, parts: list[tuple[int, int, int]], owner: int, time: int, counts: int | Sequence[int]
    ) -> None:
        """Set owner, time and counts of the entries of these parts, all in memory.

        counts: one delivery count for all, or one per entry.
        """
        n = sum([k - j for _, j, k in parts])
        times, owners, tally = columns_of(n, owner, time, counts)
        at = 0
        for i, j, k in parts:
            chunk = self.own(i) if self.serials[i] else self.chunks[i] or self.load(i)
            to = at + k - j
            chunk[1][j:k], chunk[2][j:k], chunk[3][j:k] = times[at:to], owners[at:to], tally[at:to]
            at = to


def columns_of(
    n: int, owner: int, time: int, counts: int | Sequence[int]
) -> tuple[array[int], array[int], array[int]]:
    """The columns of n entries: (times, owners, counts). counts: one value for all, or one per entry."""
    tally = array("q", [counts]) * n if isinstance(counts, int) else array("q", counts)
    return array("q", [time]) * n, array("I", [owner]) * n, tally
