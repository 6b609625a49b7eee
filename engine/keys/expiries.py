"""Expiries: the keys of one database that have a time to live, and which of them are due.

A dict maps a key to the last unix ms of its life (as in Redis, a key is expired when now is *later*), and a heap has
(ms, key). Heap entries that no longer agree with the dict are stale. They are dropped when they reach the top, and all
at once when they outnumber the valid ones. So setting, dropping and finding a due key is amortised O(log n).

The dict has the times of the keys that are in memory (engine.keys.keyspace). The others lie in the checkpoint, earliest
first. `cold_next` is a lower bound of their times; keys that are due are loaded from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.changes import Table
from tidelog.engine.rowkeys import expiry_ms, expiry_prefix, expiry_row

NEVER: Final = 1 << 63  # later than any time that can be set: times are signed 64-bit integers

_residents = dict.__len__


class Expiries(dict[bytes, int]):
    """Key -> unix ms of the keys in memory. Read it as a dict; change it only through the methods.

    count       number of keys with a time, in memory or not; also the result of `len`
    cold_next   unix ms; no key that is not in memory expires earlier
    """

    __slots__ = ("_heap", "table", "count", "cold_next", "_cold_from")

    def __init__(self, table: Table | None = None, count: int = 0) -> None:
        super().__init__()
        self._heap: list[tuple[int, bytes]] = []
        self.table = Table() if table is None else table
        self.count = count
        self.cold_next = 0 if count else NEVER
        # the row from which `cold_next` was read; the rows before it are not read again
        self._cold_from = b""

    def __len__(self) -> int:
        return self.count

    # --- changing: called only while effects are applied, and only for keys in memory

    def put(self, key: bytes, at: int) -> None:
        """Set a key's time: it lives up to and including `at`, in unix ms."""
        if key not in self:
            self.count += 1
        self.load(key, at)

    def drop(self, key: bytes) -> int:
        """Remove a key's time. Return the time it had, or NEVER."""
        at = self.pop(key, NEVER)
        if at != NEVER:
            self.count -= 1
        return at

    def drop_all(self, keys: Iterable[bytes]) -> int:
        """`drop` of many keys. Return the earliest time that one of them had, or NEVER."""
        earliest = min(map(self.drop, keys), default=NEVER)
        # removes the stale entries in one pass; popping them one by one would cost more
        self._tidy()
        return earliest

    # --- what is due

    def first(self) -> int:
        """The earliest time of all keys, or NEVER. If some keys are not in memory, it is only a lower bound."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self.get(key) == at:
                return min(at, self.cold_next)
            heappop(heap)
        return self.cold_next

    def due(self, now: int, limit: int) -> list[bytes]:
        """Up to `limit` keys whose time is before `now` (unix ms), each once. May load times, but changes none.

        May raise CorruptBlock.
        """
        if self.cold_next < now:
            self._take_in(now, limit)
        heap = self._heap
        found: dict[bytes, None] = {}
        # In a heap no child is earlier than its parent, so the due entries are connected at the top. Visit only these.
        visit = [0] if heap else []
        while visit and len(found) < limit:
            index = visit.pop()
            at, key = heap[index]
            if at < now:
                if self.get(key) == at:
                    found[key] = None
                visit.extend(child for child in (2 * index + 1, 2 * index + 2) if child < len(heap))
        return list(found)

    def soon(self, prefix: bytes, before: int) -> list[bytes]:
        """The keys that begin with `prefix` and whose time is before `before` (unix ms), in memory or not; loads none.

        Rows of the checkpoint that cannot be read are left out, and those behind them.
        """
        found = [key for key, at in self.items() if at < before and key.startswith(prefix)]
        cold = self.table.changes.cold
        if cold is None or self.cold_next >= before:
            return found
        try:
            for row, key in cold.rows(expiry_prefix(self.table.number), self._cold_from):
                if expiry_ms(row) >= before:
                    break
                if key.startswith(prefix) and key not in self and self.table.stored(key):
                    found.append(key)
        except CorruptBlock:
            pass
        return found

    def pass_over(self, key: bytes) -> None:
        """Hide from `due` a key that cannot be read. Commands that name it get the error."""
        self.pop(key, NEVER)

    def give_up(self) -> None:
        """Stop looking for due keys in the checkpoint, after its rows could not be read."""
        self.cold_next, self._cold_from = NEVER, b""

    # --- what is in memory and what is not

    def load(self, key: bytes, at: int) -> None:
        """Set a key's time in memory without counting it, since `count` includes it already."""
        # push first: an interrupt before the next line then leaves only a stale heap entry
        heappush(self._heap, (at, key))
        self[key] = at
        self._tidy()

    def _tidy(self) -> None:
        """Rebuild the heap if most of it is stale."""
        if len(self._heap) > 2 * _residents(self) + 64:
            self._heap = [(at, key) for key, at in self.items()]
            heapify(self._heap)

    def evict(self, key: bytes) -> None:
        """Forget the time of a key that is evicted from memory; the checkpoint has it."""
        at = self.pop(key, NEVER)
        if at <= self.cold_next and at != NEVER:
            row = expiry_row(self.table.number, at, key)
            if at < self.cold_next or row < self._cold_from:
                self.cold_next, self._cold_from = at, row

    def _take_in(self, before: int, limit: int) -> None:
        """Load the times of up to `limit` keys that are not in memory and expire before `before` (unix ms)."""
        table, cold = self.table, self.table.changes.cold
        if cold is not None:
            for row, key in cold.rows(expiry_prefix(table.number), self._cold_from):
                at = expiry_ms(row)
                if at >= before or limit == 0:
                    self.cold_next, self._cold_from = at, row
                    return
                if key not in self and table.stored(key):
                    self.load(key, at)
                    limit -= 1
        self.cold_next, self._cold_from = NEVER, b""
