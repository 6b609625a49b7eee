"""Expiries: the keys of one database that have a time to live, and which of them are due.

A dict key -> the last unix ms of its life (as in Redis, expired means that now is *later* than that), and
beside it a heap of (ms, key). The heap may hold entries the dict no longer agrees with; they are dropped when
they reach its top, and all at once when they outnumber the rest. So setting, dropping and finding what is due
are O(log n), however many keys have a time.

The dict has the times of the keys that are in memory (engine.keyspace). The others lie in the checkpoint, earliest
first; of these it is known before which moment none comes, and those whose time has come are taken in.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from tidelog.engine.changes import Table
from tidelog.engine.rowkeys import expiry_ms, expiry_prefix, expiry_row

NEVER: Final = 1 << 63  # later than any time that can be set: those are 64-bit integers

_residents = dict.__len__


class Expiries(dict[bytes, int]):
    """Key -> unix ms of the keys in memory. Read it as a dict; change it through `put` and `drop` alone.

    count       keys that have a time, in memory or not; also its length
    cold_next   no key that is not in memory expires before this moment
    """

    __slots__ = ("_heap", "table", "count", "cold_next", "_cold_from")

    def __init__(self, table: Table | None = None, count: int = 0) -> None:
        super().__init__()
        self._heap: list[tuple[int, bytes]] = []
        self.table = Table() if table is None else table
        self.count = count
        self.cold_next = 0 if count else NEVER
        self._cold_from = b""  # the row that `cold_next` was read from: no earlier one counts

    def __len__(self) -> int:
        return self.count

    # --- changing: called by apply alone, for keys that are in memory

    def put(self, key: bytes, at: int) -> None:
        """The key lives up to and including `at`, whatever was set before."""
        if key not in self:
            self.count += 1
        self.load(key, at)

    def drop(self, key: bytes) -> int:
        """The key has no time any more. The time it had, or NEVER."""
        at = self.pop(key, NEVER)
        if at != NEVER:
            self.count -= 1
        return at

    def drop_all(self, keys: Iterable[bytes]) -> int:
        """`drop` of many keys. The earliest time that one of them had, or NEVER."""
        earliest = min(map(self.drop, keys), default=NEVER)
        self._tidy()  # one pass over the heap; popping what is void one by one would cost more than the rest
        return earliest

    # --- what is due

    def first(self) -> int:
        """The earliest time of all, or NEVER; with keys that are not in memory, a moment before which none comes."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self.get(key) == at:
                return min(at, self.cold_next)
            heappop(heap)
        return self.cold_next

    def due(self, now: int, limit: int) -> list[bytes]:
        """Up to `limit` keys whose time is before `now`, each once. Changes nothing. May raise CorruptBlock."""
        if self.cold_next < now:
            self._take_in(now, limit)
        heap = self._heap
        found: dict[bytes, None] = {}
        # What is due is the top of the heap: no child is earlier than its parent.
        visit = [0] if heap else []
        while visit and len(found) < limit:
            index = visit.pop()
            at, key = heap[index]
            if at < now:
                if self.get(key) == at:
                    found[key] = None
                visit.extend(child for child in (2 * index + 1, 2 * index + 2) if child < len(heap))
        return list(found)

    def pass_over(self, key: bytes) -> None:
        """A key that is due cannot be read: let it not be found again. Who names it is told."""
        self.pop(key, NEVER)

    def give_up(self) -> None:
        """What the checkpoint has cannot be read: of the keys that are not in memory, none is found any more."""
        self.cold_next, self._cold_from = NEVER, b""

    # --- what is in memory and what is not

    def load(self, key: bytes, at: int) -> None:
        """A key has this time: it was counted already."""
        heappush(self._heap, (at, key))  # first: an interrupt in between leaves a time of nobody
        self[key] = at
        self._tidy()

    def _tidy(self) -> None:
        """Build the heap anew if most of it is void."""
        if len(self._heap) > 2 * _residents(self) + 64:
            self._heap = [(at, key) for key, at in self.items()]
            heapify(self._heap)

    def evict(self, key: bytes) -> None:
        """A key leaves memory. The checkpoint has its time, if it has one."""
        at = self.pop(key, NEVER)
        if at <= self.cold_next and at != NEVER:
            row = expiry_row(self.table.number, at, key)
            if at < self.cold_next or row < self._cold_from:
                self.cold_next, self._cold_from = at, row

    def _take_in(self, before: int, limit: int) -> None:
        """Take in up to `limit` keys that are not in memory and expire before a moment."""
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
