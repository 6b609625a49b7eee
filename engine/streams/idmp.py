"""Idempotent production: maps (producer, iid) to the entry that it added (spec 5.1.1).

An iid is *expired* when its entry's ms is at most `now - duration`. Each lookup checks that, so no background task is
needed. The apply of an IDMP add frees memory: it drops iids that are expired at the new entry's ms. That depends only
on the effect, so replay drops the same iids.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

DURATION_DEFAULT_S: Final = 100
MAXSIZE_DEFAULT: Final = 100
DURATION_MAX_S: Final = 86400
MAXSIZE_MAX: Final = 10000
_DIGEST_BYTES: Final = 16
_ID_BYTES: Final = 16

Table = dict[bytes, int]  # iid -> entry ID, oldest first


class Idmp:
    """The dedup tables of one stream.

    duration    seconds an iid is remembered      added        lifetime counter of iids
    maxsize     iids per producer                 duplicates   lifetime counter of hits
    producers   pid -> iid -> entry ID; producers in the order of their latest add
    """

    __slots__ = ("duration", "maxsize", "producers", "added", "duplicates", "_handed")

    def __init__(self, duration: int = DURATION_DEFAULT_S, maxsize: int = MAXSIZE_DEFAULT) -> None:
        self.duration = duration
        self.maxsize = maxsize
        self.producers: dict[bytes, Table] = {}
        self.added = 0
        self.duplicates = 0
        # The tables that a frozen copy may share: copy such a table before changing it.
        self._handed: dict[bytes, Table] = {}

    def lookup(self, pid: bytes, iid: bytes, now: int) -> int | None:
        """The entry ID of an unexpired iid, or None. now: unix ms."""
        table = self.producers.get(pid)
        entry_id = table.get(iid) if table else None
        if entry_id is None or self._expired(entry_id, now):
            return None
        return entry_id

    def record(self, pid: bytes, iid: bytes, entry_id: int) -> None:
        """Record `iid -> entry_id` as the newest of its producer; drop the oldest ones beyond `maxsize`."""
        table = self.producers.pop(pid, None) or {}
        if self._handed.get(pid) is table:
            table = self._own(pid, table)
        table.pop(iid, None)
        table[iid] = entry_id
        while len(table) > self.maxsize:
            del table[next(iter(table))]
        self.producers[pid] = table
        self.added += 1

    def expire(self, pid: bytes, now: int) -> None:
        """Drop the expired iids of one producer, and every producer whose newest iid is expired. now: unix ms."""
        table = self.producers.get(pid)
        while table:
            oldest = next(iter(table))
            if not self._expired(table[oldest], now):
                break
            if self._handed.get(pid) is table:
                # The key exists already, so assigning to it keeps the order of the producers.
                table = self.producers[pid] = self._own(pid, table)
            del table[oldest]
        if table is not None and not table:
            del self.producers[pid]
        while self.producers:
            idle = next(iter(self.producers))
            if not self._expired(next(reversed(self.producers[idle].values())), now):
                break
            del self.producers[idle]

    def configure(self, duration: int, maxsize: int) -> None:
        """Set the limits (seconds, iids) and drop every iid; the counters stay (spec 5.7)."""
        self.duration = duration
        self.maxsize = maxsize
        self.producers.clear()
        self._handed = {}

    def tracked(self, now: int) -> tuple[int, int]:
        """(producers, iids) as XINFO counts them: only unexpired ones. now: unix ms."""
        counts = [
            sum(not self._expired(entry_id, now) for entry_id in table.values())
            for table in self.producers.values()
        ]
        return sum(map(bool, counts)), sum(counts)

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Every (pid, iid, entry ID): producers by name, the iids of each oldest first."""
        for pid in sorted(self.producers):
            for iid, entry_id in self.producers[pid].items():
                yield pid, iid, entry_id

    def copy(self) -> Idmp:
        """An independent copy."""
        other = Idmp(self.duration, self.maxsize)
        other.producers = {pid: dict(table) for pid, table in self.producers.items()}
        other.added = self.added
        other.duplicates = self.duplicates
        return other

    def _own(self, pid: bytes, table: Table) -> Table:
        del self._handed[pid]
        return dict(table)

    # --- checkpoints

    def freeze(self) -> Idmp:
        """A read-only copy that later changes do not affect. O(producers): tables are copied on write."""
        other = Idmp(self.duration, self.maxsize)
        other.producers = self.producers.copy()
        other.added = self.added
        other.duplicates = self.duplicates
        self._handed = self.producers.copy()
        return other

    def pack(self) -> list[Any]:
        """The tables as a value for msgpack: [duration, maxsize, added, duplicates, [[pid, iids, IDs], ...]]."""
        producers = [
            [pid, list(table), b"".join([id.to_bytes(_ID_BYTES, "big") for id in table.values()])]
            for pid, table in self.producers.items()
        ]
        return [self.duration, self.maxsize, self.added, self.duplicates, producers]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Idmp:
        """The tables from a value of `pack`. Raises ValueError for an invalid one."""
        duration, maxsize, added, duplicates, producers = packed
        self = cls(duration, maxsize)
        self.added = added
        self.duplicates = duplicates
        for pid, iids, ids in producers:
            places = range(0, len(ids), _ID_BYTES)
            numbers = [int.from_bytes(ids[at : at + _ID_BYTES], "big") for at in places]
            self.producers[pid] = dict(zip(iids, numbers, strict=True))
        return self

    def _expired(self, entry_id: int, now: int) -> bool:
        return entry_id >> 64 <= now - self.duration * 1000


def auto_iid(row: tuple[bytes, ...]) -> bytes:
    """The iid of IDMPAUTO, 16 bytes: a digest of the field-value pairs that does not depend on their order.

    It is the sum of one BLAKE2b per pair. Redis sums XXH3 halves; only file compatibility would need the same.
    """
    total = 0
    for field, value in zip(row[::2], row[1::2]):
        pair = b"%d:%b%b" % (len(field), field, value)
        total += int.from_bytes(blake2b(pair, digest_size=_DIGEST_BYTES).digest(), "big")
    return (total & (1 << 8 * _DIGEST_BYTES) - 1).to_bytes(_DIGEST_BYTES, "big")
