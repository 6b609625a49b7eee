"""Counts of the most frequent names in bounded memory, after the algorithm Space-Saving (Metwally and others, 2005).

When the table is full, the less frequent half is dropped. A name that comes later may have been dropped before, so it
begins with the highest count that was dropped. So a count is never too low, and too high by at most the `error` of its
row; a name that is missing did not occur more often than that.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)


class Row(NamedTuple, Generic[T]):
    """A name, how often it occurred at most, by how much that may be too high, and the bytes and entries seen since it
    is here.
    """

    name: T
    most: int
    error: int
    nbytes: int
    entries: int


class Sketch(Generic[T]):
    """Counts names; keeps at most `capacity` of them.

    The table grows to twice the capacity and is then cut back to the most frequent half, so that a new name costs O(1)
    on average and not a search for the least frequent one.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.total = self.nbytes = self.entries = 0
        self._floor = 0  # no name that is not here occurred more often
        self._rows: dict[T, list[int]] = {}  # name -> [count, error, bytes, entries]

    def add(self, name: T, nbytes: int, count: int = 1, entries: int = 0) -> None:
        """Count a name `count` times."""
        self.total += count
        self.nbytes += nbytes
        self.entries += entries
        row = self._rows.get(name)
        if row is not None:
            row[0] += count
            row[2] += nbytes
            row[3] += entries
            return
        self._rows[name] = [self._floor + count, self._floor, nbytes, entries]
        if len(self._rows) >= 2 * self.capacity:
            self._cut()

    def _cut(self) -> None:
        """Keep the most frequent names."""
        ranked = sorted(self._rows.items(), key=lambda pair: -pair[1][0])
        self._floor = max(self._floor, ranked[self.capacity][1][0])
        self._rows = dict(ranked[: self.capacity])

    @property
    def exact(self) -> bool:
        """Whether every name is here, and every count is exact."""
        return not self._floor

    def top(self, count: int) -> list[Row[T]]:
        """The most frequent names, the most frequent first."""
        ranked = sorted(self._rows.items(), key=lambda pair: -pair[1][0])[:count]
        return [Row(name, *row) for name, row in ranked]

    def largest(self, count: int) -> list[Row[T]]:
        """The names with the most bytes among those that are here, the largest first."""
        ranked = sorted(self._rows.items(), key=lambda pair: -pair[1][2])[:count]
        return [Row(name, *row) for name, row in ranked]
