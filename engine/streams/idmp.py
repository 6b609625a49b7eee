"""Idempotent production: maps (producer, iid) to the entry that it added (spec 5.1.1).

An iid is *expired* when its time is at most `now - duration`. Its time is the ms of its entry, or the time at which it
was recorded if that is earlier: the IDs of a stream can run ahead of the clock. Each lookup checks that, so no
background task is needed. The apply of an IDMP add frees memory: it drops iids that are expired at the new iid's time.
That depends only on the effect, so replay drops the same iids.

Two times are no times. An iid that is recorded with the time FREED is forgotten. One with the time HELD does not
expire, so it stays until it is freed, or pushed out by `maxsize` newer ones. The queue writes both (jobs/dedup.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

DURATION_DEFAULT_S: Final = 100
MAXSIZE_DEFAULT: Final = 100
DURATION_MAX_S: Final = 86400
MAXSIZE_MAX: Final = 10000
FREED: Final = 1  # unix ms: before any window, so a version that knows no FREED takes the iid for an expired one
HELD: Final = (1 << 48) - 1  # unix ms: behind any window
_DIGEST_BYTES: Final = 16
_ID_BYTES: Final = 16

# iid -> entry ID, oldest first; above its 128 bits the iid's time, if the entry's ms is not it
Table = dict[bytes, int]
_ID: Final = (1 << 128) - 1


class Idmp:
    """The dedup tables of one stream.

    duration    seconds an iid is remembered      added        lifetime counter of iids
    maxsize     iids per producer                 duplicates   lifetime counter of hits
    producers   pid -> iid -> entry ID; producers in the order of their latest add
    """

    __slots__ = ("duration", "maxsize", "producers", "added", "duplicates", "_handed", "_owners")

    def __init__(self, duration: int = DURATION_DEFAULT_S, maxsize: int = MAXSIZE_DEFAULT) -> None:
        self.duration = duration
        self.maxsize = maxsize
        self.producers: dict[bytes, Table] = {}
        self.added = 0
        self.duplicates = 0
        # The tables that a frozen copy may share: copy such a table before changing it.
        self._handed: dict[bytes, Table] = {}
        # pid -> entry ID -> iid, made when it is first asked for. It may also have iids that are gone.
        self._owners: dict[bytes, dict[int, bytes]] = {}

    def lookup(self, pid: bytes, iid: bytes, now: int) -> int | None:
        """The entry ID of an unexpired iid, or None. now: unix ms."""
        table = self.producers.get(pid)
        record = table.get(iid) if table else None
        if record is None or self._expired(record, now):
            return None
        return record & _ID

    def owned(self, pid: bytes, entry_id: int) -> bytes | None:
        """The iid whose entry this is, expired or not; None if there is none."""
        table = self.producers.get(pid)
        if not table:
            return None
        owners = self._owners.get(pid)
        if owners is None or len(owners) > 2 * self.maxsize:
            owners = {record & _ID: iid for iid, record in table.items()}
            self._owners[pid] = owners
        iid = owners.get(entry_id)
        return iid if iid is not None and table.get(iid, -1) & _ID == entry_id else None

    def record(self, pid: bytes, iid: bytes, entry_id: int, time: int | None = None) -> None:
        """Record `iid -> entry_id` as the newest of its producer; drop the oldest ones beyond `maxsize`.

        time: the iid's time, unix ms; None: the entry's ms; FREED: forget the iid instead.
        """
        if time == FREED:
            self._forget(pid, iid)
            return
        owners = self._owners.get(pid)
        if owners is not None:
            owners[entry_id] = iid
        table = self.producers.pop(pid, None) or {}
        if self._handed.get(pid) is table:
            table = self._own(pid, table)
        table.pop(iid, None)
        table[iid] = entry_id | (time or 0) << 128
        while len(table) > self.maxsize:
            del table[next(iter(table))]
        self.producers[pid] = table
        self.added += 1

    def _forget(self, pid: bytes, iid: bytes) -> None:
        table = self.producers.get(pid)
        if table is None or iid not in table:
            return
        if self._handed.get(pid) is table:
            table = self.producers[pid] = self._own(pid, table)
        del table[iid]
        if not table:
            del self.producers[pid]

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
        self._owners = {}

    def tracked(self, now: int) -> tuple[int, int]:
        """(producers, iids) as XINFO counts them: only unexpired ones. now: unix ms."""
        counts = [
            sum(not self._expired(record, now) for record in table.values())
            for table in self.producers.values()
        ]
        return sum(map(bool, counts)), sum(counts)

    def records(self) -> Iterator[tuple[bytes, bytes, int, int | None]]:
        """Every (pid, iid, entry ID, time): producers by name, the iids of each oldest first.

        time: unix ms; None: the entry's ms.
        """
        for pid in sorted(self.producers):
            for iid, record in self.producers[pid].items():
                yield pid, iid, record & _ID, record >> 128 or None

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
        """The tables as a value for msgpack: [duration, maxsize, added, duplicates, [[pid, iids, IDs], ...]].

        A producer with an iid whose time is not its entry's ms has a fourth item: the time of each iid, or 0.
        """
        producers: list[list[Any]] = []
        for pid, table in self.producers.items():
            ids = b"".join([(record & _ID).to_bytes(_ID_BYTES, "big") for record in table.values()])
            times = [record >> 128 for record in table.values()]
            producers.append([pid, list(table), ids, *([times] if any(times) else [])])
        return [self.duration, self.maxsize, self.added, self.duplicates, producers]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Idmp:
        """The tables from a value of `pack`. Raises ValueError for an invalid one."""
        duration, maxsize, added, duplicates, producers = packed
        self = cls(duration, maxsize)
        self.added = added
        self.duplicates = duplicates
        for pid, iids, ids, *times in producers:
            places = range(0, len(ids), _ID_BYTES)
            records = [int.from_bytes(ids[at : at + _ID_BYTES], "big") for at in places]
            for times_of in times:
                pairs = zip(records, times_of, strict=True)
                records = [entry_id | time << 128 for entry_id, time in pairs]
            self.producers[pid] = dict(zip(iids, records, strict=True))
        return self

    def _expired(self, record: int, now: int) -> bool:
        return (record >> 128 or record >> 64) <= now - self.duration * 1000


def auto_iid(row: tuple[bytes, ...]) -> bytes:
    """The iid of IDMPAUTO, 16 bytes: a digest of the field-value pairs that does not depend on their order.

    It is the sum of one BLAKE2b per pair. Redis sums XXH3 halves; only file compatibility would need the same.
    """
    total = 0
    for field, value in zip(row[::2], row[1::2]):
        pair = b"%d:%b%b" % (len(field), field, value)
        total += int.from_bytes(blake2b(pair, digest_size=_DIGEST_BYTES).digest(), "big")
    return (total & (1 << 8 * _DIGEST_BYTES) - 1).to_bytes(_DIGEST_BYTES, "big")
