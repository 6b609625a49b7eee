"""Expiries: the keys of one database that have a time to live, and which of them are due.

A dict key -> the last unix ms of its life (as in Redis, expired means that now is *later* than that), and
beside it a heap of (ms, key). The heap may hold entries the dict no longer agrees with; they are dropped when
they reach its top, and all at once when they outnumber the rest. So setting, dropping and finding what is due
are O(log n), however many keys have a time.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

NEVER = 1 << 63  # later than any time that can be set: those are 64-bit integers


class Expiries(dict[bytes, int]):
    """Key -> unix ms. Read it as a dict; change it through `put` and `drop` alone."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, bytes]] = []

    def put(self, key: bytes, at: int) -> None:
        """The key lives up to and including `at`, whatever was set before."""
        self[key] = at
        heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self) + 64:
            self._heap = [(at, key) for key, at in self.items()]
            heapify(self._heap)

    def drop(self, key: bytes) -> int:
        """The key has no time any more. The time it had, or NEVER."""
        return self.pop(key, NEVER)

    def first(self) -> int:
        """The earliest time of all, or NEVER."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self.get(key) == at:
                return at
            heappop(heap)
        return NEVER

    def due(self, now: int, limit: int) -> list[bytes]:
        """Up to `limit` keys whose time is before `now`, each once. Changes nothing."""
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
