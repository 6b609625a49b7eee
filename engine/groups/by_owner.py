"""The pending entries of one consumer: chunks of IDs, ascending."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator

from tidelog.engine.groups.chunk_rows import Column
from tidelog.engine.groups.chunks import LOAD, Order, Shelf


class Owned(Order):
    """The IDs that are pending for one consumer. n: their number."""

    __slots__ = ("n",)

    def __init__(self, shelf: Shelf, new: Callable[[Iterable[int]], Column]) -> None:
        super().__init__(shelf, new)
        self.n = 0

    def discard(self, key: int) -> None:
        """Remove an ID that is in the order. May raise CorruptBlock."""
        i = bisect_left(self.tops, key)
        chunk = self.chunks[i] or self.load(i)
        if self.serials[i]:
            chunk = self.own(i)
        ids = chunk[0]
        self.n -= 1
        if len(ids) == 1:
            del self.chunks[i], self.tops[i], self.serials[i]
        else:
            del ids[bisect_left(ids, key)]
            self.tops[i] = ids[-1]

    def add(self, want: Column, n: int) -> None:
        """Add n ascending IDs that are not in the order yet. Takes over the column. May raise CorruptBlock."""
        tops = self.tops
        if not tops or want[0] > tops[-1]:
            self.n += n
            self.append((want,), n)
            return
        i = bisect_left(tops, want[0])
        ids = (self.chunks[i] or self.load(i))[0]
        j = bisect_left(ids, want[0])
        if n > 1 and ids[j] < want[-1]:
            for at in range(n):
                self.add(want[at : at + 1], 1)
            return
        self.n += n
        self.insert(i, j, (want,))

    def add_one(self, key: int) -> None:
        """`add` of one ID, with the append to the end inlined."""
        tops = self.tops
        if tops:
            if key < tops[-1]:
                i = bisect_left(tops, key)
                chunk = self.chunks[i] or self.load(i)
                if self.serials[i]:
                    chunk = self.own(i)
                self.n += 1
                insort(chunk[0], key)
                if len(chunk[0]) >= 2 * LOAD:
                    self.split(i)
                return
            if not self.serials[-1] or self.reopen():
                ids = (self.chunks[-1] or self.load(-1))[0]
                if len(ids) < LOAD:
                    self.n += 1
                    ids.append(key)
                    tops[-1] = key
                    return
        self.n += 1
        self.chunks.append((self.new((key,)),))
        self.serials.append(0)
        tops.append(key)

    def slices(self, low: int, high: int) -> Iterator[Column]:
        """The IDs low..high, ascending, as columns. May raise CorruptBlock."""
        for i in range(bisect_left(self.tops, low), len(self.tops)):
            ids = (self.chunks[i] or self.load(i))[0]
            if ids[0] < low:
                ids = ids[bisect_left(ids, low) :]
            if ids[-1] > high:
                ids = ids[: bisect_right(ids, high)]
            if not ids:
                break
            yield ids
