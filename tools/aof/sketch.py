"""Counts of the most frequent names in bounded memory, after the algorithm Space-Saving (Metwally and others, 2005).

When the table is full, the less frequent half is dropped. A name that comes later may have been dropped before, so it
begins with the highest count that was dropped. So a count is never too low, and too high by at most the `error` of its
row; a name that is missing did not occur more often than that.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from tidelog.engine.fast_path import fast_path

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

    The table grows to twice the capacity, or beyond it by the names of one `add_all`, and is then cut back to the most
    frequent ones, so that a new name costs O(1) on average and not a search for the least frequent one.
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

    @fast_path(
        of="tools.aof.sketch:Sketch.add",
        held_by="tests/tools/test_aof_stats.py::test_names_that_are_added_at_once_are_those_one_by_one",
    )
    def add_all(self, counted: Mapping[T, int], nbytes: int, entries: int) -> None:
        """Count each name as often as `counted` says, each time with `nbytes` and `entries`. A third of the cost of
        `add`.
        """
        total = sum(counted.values())
        self.total += total
        self.nbytes += nbytes * total
        self.entries += entries * total
        rows, floor = self._rows, self._floor
        find = rows.get
        for name, count in counted.items():
            row = find(name)
            if row is None:
                rows[name] = [floor + count, floor, nbytes * count, entries * count]
            else:
                row[0] += count
                row[2] += nbytes * count
                row[3] += entries * count
        if len(rows) >= 2 * self.capacity:
            self._cut()

    def _cut(self) -> None:
        """Keep the most frequent names, and of those that are equally frequent the ones that came first."""
        rows = self._rows
        counts = sorted([row[0] for row in rows.values()], reverse=True)
        least = counts[self.capacity]
        self._floor = max(self._floor, least)
        self._rows = {name: row for name, row in rows.items() if row[0] > least}
        as_many = (pair for pair in rows.items() if pair[1][0] == least)
        self._rows.update(islice(as_many, self.capacity - len(self._rows)))

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
