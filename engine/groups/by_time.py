"""The pending entries of a group by delivery time: chunks of (IDs, times), ordered by (time, ID).

Tops are times. Among chunks that end at the same time the last ID decides. `lasts` has the last IDs of the chunks that
are not in memory, so that a search loads no chunk but the one it finds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from tidelog.engine.groups.chunk_rows import Chunk, Column
from tidelog.engine.groups.chunks import LOAD, Order, Shelf


class TimeOrder(Order):
    """All entries of a group, oldest delivery first."""

    __slots__ = ("lasts",)

    CODES: ClassVar[str] = "qq"
    TOP: ClassVar[int] = 1

    def __init__(self, shelf: Shelf, new: Callable[[Iterable[int]], Column]) -> None:
        super().__init__(shelf, new)
        # Maps the serial of a chunk to the chunk's last ID. Every chunk that is not in memory is in this dict; others
        # may be.
        self.lasts: dict[int, int] = {}

    # --- finding

    def last_of(self, i: int) -> int:
        """The last ID of chunk i. Loads nothing."""
        chunk = self.chunks[i]
        return self.lasts[self.serials[i]] if chunk is None else chunk[0][-1]

    def is_above(self, time: int, key: int) -> bool:
        """Whether (time, ID) comes after all entries. Loads nothing."""
        tops = self.tops
        if not tops or time > tops[-1]:
            return True
        return time == tops[-1] and key > self.last_of(-1)

    def chunk_of(self, time: int, key: int) -> int:
        """The index of the chunk where (time, ID) is or would be inserted; it is not above all. Loads nothing."""
        tops = self.tops
        i = bisect_left(tops, time)
        if tops[i] == time and self.last_of(i) < key:
            end = bisect_right(tops, time, i)
            i += 1 + bisect_left(range(i + 1, end), key, key=self.last_of)
        return i

    def place(self, time: int, key: int) -> tuple[int, int]:
        """(chunk, position) where (time, ID) is or would be inserted; it is not above all. May raise CorruptBlock."""
        i = self.chunk_of(time, key)
        ids, times = self.chunks[i] or self.load(i)
        low = bisect_left(times, time)
        return i, bisect_left(ids, key, low, bisect_right(times, time, low))

    def warm_at(self, time: int, want: Column) -> None:
        """Load the chunks that hold the IDs of `want`, ascending and all of one time. May raise CorruptBlock."""
        first, last = self.chunk_of(time, want[0]), self.chunk_of(time, want[-1])
        if last - first <= len(want):
            self.load_some(first, last + 1)
        else:  # they are far apart
            for key in want:
                i = self.chunk_of(time, key)
                self.load_some(i, i + 1)

    def warm_new_at(self, time: int, want: Column, gone: set[int]) -> None:
        """Load every chunk into which the IDs of `want`, ascending, may be inserted with this time while those of
        `gone` are removed one by one. (time, first ID) is not above all. May raise CorruptBlock.
        """
        chunks, high = self.chunks, want[-1]
        first, end = self.chunk_of(time, want[0]), len(chunks)
        last = end if self.is_above(time, high) else self.chunk_of(time, high)
        if last - first > len(want) > 1:
            for at in range(len(want)):
                if not self.is_above(time, want[at]):
                    self.warm_new_at(time, want[at : at + 1], gone)
            return
        self.load_some(first, last)
        for i in range(last, end):
            ids, times = chunks[i] or self.load(i)
            stays = next((j for j in reversed(range(len(ids))) if ids[j] not in gone), None)
            if stays is not None and (times[stays], ids[stays]) > (time, high):
                return

    def first_time(self) -> int:
        """The oldest delivery time. The order is not empty. May raise CorruptBlock."""
        return (self.chunks[0] or self.load(0))[1][0]

    def slices(self, start: int) -> Iterator[Chunk]:
        """The entries delivered at `start` (unix ms) or later, as columns, chunk by chunk. May raise CorruptBlock."""
        i = bisect_left(self.tops, start)
        if i == len(self.tops):
            return
        ids, times = self.chunks[i] or self.load(i)
        j = bisect_left(times, start)
        yield ids[j:], times[j:]
        for at in range(i + 1, len(self.chunks)):
            yield self.chunks[at] or self.load(at)

    # --- changing

    def add(self, want: Column, n: int, time: int) -> None:
        """Add ascending IDs of one delivery time. Copies the column."""
        tops = self.tops
        if not tops or time > tops[-1] or self.is_above(time, want[0]):
            self.append((want[:], array("q", [time]) * n), n)
            return
        i, j = self.place(time, want[0])
        ids, times = self.chunks[i] or self.load(i)
        if n > 1 and (times[j], ids[j]) < (time, want[-1]):
            for at in range(n):
                self.add(want[at : at + 1], 1, time)
            return
        self.insert(i, j, (want, array("q", [time]) * n))

    def add_one(self, key: int, time: int) -> None:
        """`add` of one ID, with the append to the end inlined."""
        tops = self.tops
        if tops and (not self.serials[-1] or self.reopen()):
            ids, times = self.chunks[-1] or self.load(-1)
            last = tops[-1]
            if time < last or (time == last and key < ids[-1]):
                self.add(self.new((key,)), 1, time)
                return
            if len(ids) < LOAD:
                ids.append(key)
                times.append(time)
                tops[-1] = time
                return
        elif not self.is_above(time, key):
            self.add(self.new((key,)), 1, time)
            return
        self.chunks.append((self.new((key,)), array("q", (time,))))
        self.serials.append(0)
        tops.append(time)

    def remove(self, time: int, key: int) -> None:
        """Remove an entry that is in the order. May raise CorruptBlock."""
        i, j = self.place(time, key)
        ids, times = self.own(i) if self.serials[i] else self.chunks[i] or self.load(i)
        if len(ids) == 1:
            del self.chunks[i], self.tops[i], self.serials[i]
        else:
            del ids[j], times[j]
            self.tops[i] = times[-1]

    # --- chunks that are not in memory

    def fits(self, i: int, chunk: Chunk) -> None:
        super().fits(i, chunk)
        if chunk[0][-1] != self.last_of(i):
            raise ValueError("its row has other entries")

    def describe(self, i: int) -> str:
        after = f"after {self.tops[i - 1]} " if i else ""
        last = self.id_text(self.last_of(i))
        return self.described(f"delivered {after}up to {self.tops[i]} ms, the last ID {last},", i)

    def evict(self) -> None:
        self.lasts = {serial: self.last_of(i) for i, serial in enumerate(self.serials) if serial}
        super().evict()
