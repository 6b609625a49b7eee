"""Streams and groups as docs/reference/streams.md describes 8.8, in the plainest way: dicts, lists and full scans.

Written from that page alone, to be compared with the engine where no server can be asked: CLAIM, XNACK, XACKDEL,
XDELEX, reference policies, dedup. One stream in one node, valid arguments only. Replies are wire forms. Times are
unix ms; an ID is one int as in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.oracle.render import id_text
from tests.oracle.wire import NULL_ARRAY, Form, error

COUNT_MAX = (1 << 63) - 1
NEVER_NACKED = 0


@dataclass
class Waiting:
    """A pending entry. `nacked` > 0: its place in the NACK zone; it has no owner then."""

    owner: bytes
    time: int
    count: int
    nacked: int = NEVER_NACKED


@dataclass
class Readers:
    """A consumer group."""

    last_id: int
    pending: dict[int, Waiting] = field(default_factory=dict)
    consumers: set[bytes] = field(default_factory=set)
    nacks: int = 0

    def oldest_first(self) -> list[int]:
        """NACKed entries first, in the order they were released; then by time, equal times by ID."""

        def place(id: int) -> tuple[int, int, int]:
            each = self.pending[id]
            return (0, each.nacked, 0) if each.nacked else (1, each.time, id)

        return sorted(self.pending, key=place)


class Model:
    def __init__(self) -> None:
        self.entries: dict[int, tuple[bytes, ...]] = {}
        self.last_id = 0
        self.groups: dict[bytes, Readers] = {}
        self.producers: dict[bytes, dict[bytes, int]] = {}
        self.duration_ms, self.maxsize = 100_000, 100
        self.now = 0

    # --- entries (5)

    def entry(self, id: int) -> Form:
        return [id_text(id), list(self.entries[id])]

    def xadd(
        self, id: int | None, row: tuple[bytes, ...], idmp: tuple[bytes, bytes] | None = None
    ) -> Form:
        if idmp is not None:
            pid, iid = idmp
            known = self.producers.setdefault(pid, {})
            for each, at in list(known.items()):
                if at >> 64 > self.now - self.duration_ms:
                    break
                del known[each]
            if iid in known:
                return id_text(known[iid])
        if id is None:
            id = self.now << 64 if self.now > self.last_id >> 64 else self.last_id + 1
        if id <= self.last_id:
            return error(
                b"ERR The ID specified in XADD is equal or smaller than the target stream top item"
            )
        self.entries[id] = row
        self.last_id = id
        if idmp is not None:
            known[iid] = id
            if len(known) > self.maxsize:
                del known[next(iter(known))]
        return id_text(id)

    def referenced(self, id: int) -> bool:
        return any(group.last_id < id or id in group.pending for group in self.groups.values())

    def drop_references(self, id: int) -> None:
        for group in self.groups.values():
            group.pending.pop(id, None)

    def trim(self, policy: bytes, maxlen: int | None, minid: int) -> int:
        removed = 0
        for id in sorted(self.entries):
            if len(self.entries) <= maxlen if maxlen is not None else id >= minid:
                break
            if policy == b"ACKED" and self.referenced(id):
                continue
            del self.entries[id]
            removed += 1
        if policy == b"DELREF" and (removed or maxlen is None):
            end = min(self.entries, default=1 << 128)
            for group in self.groups.values():
                for id in [
                    id
                    for id in group.pending
                    if id < (end if maxlen is not None else min(end, minid))
                ]:
                    del group.pending[id]
        return removed

    def xdelex(self, policy: bytes, ids: list[int]) -> Form:
        return [self.delete(policy, id) for id in ids]

    def delete(self, policy: bytes, id: int) -> int:
        if policy == b"ACKED" and self.referenced(id):
            return 2
        if policy == b"DELREF":
            self.drop_references(id)
        return -1 if self.entries.pop(id, None) is None else 1

    # --- groups (7)

    def xreadgroup(
        self,
        name: bytes,
        consumer: bytes,
        count: int,
        claim: int | None,
        noack: bool,
        after: int | None,
    ) -> Form:
        group = self.groups[name]
        group.consumers.add(consumer)
        limit = count if count > 0 else 1 << 62
        if after is not None:
            return [[b"s", self.history(group, consumer, limit, after)]]
        found = self.claimed(group, consumer, limit, claim) if claim is not None else []
        for id in sorted(self.entries):
            if len(found) >= limit:
                break
            if id > group.last_id:
                group.last_id = id
                if not noack:
                    group.pending[id] = Waiting(consumer, self.now, 1)
                found.append([*self.entry(id), *([] if claim is None else [0, 0])])
        return [[b"s", found]] if found else NULL_ARRAY

    def history(self, group: Readers, consumer: bytes, limit: int, after: int) -> list[Form]:
        found: list[Form] = []
        for id in sorted(group.pending):
            each = group.pending[id]
            if id > after and each.owner == consumer and not each.nacked and len(found) < limit:
                if id in self.entries:
                    each.time, each.count = self.now, min(each.count + 1, COUNT_MAX)
                    found.append(self.entry(id))
                else:
                    found.append([id_text(id), NULL_ARRAY])
        return found

    def claimed(self, group: Readers, consumer: bytes, limit: int, min_idle: int) -> list[Form]:
        found: list[Form] = []
        for id in group.oldest_first():
            each = group.pending[id]
            if len(found) >= limit or not each.nacked and self.now - each.time < min_idle:
                break
            if id in self.entries:
                idle = self.now if each.nacked else self.now - each.time
                found.append([*self.entry(id), idle, each.count])
                group.pending[id] = Waiting(consumer, self.now, min(each.count + 1, COUNT_MAX))
        return found

    def xack(self, name: bytes, ids: list[int]) -> int:
        pending = self.groups[name].pending
        return sum(pending.pop(id, None) is not None for id in ids)

    def xackdel(self, name: bytes, policy: bytes, ids: list[int]) -> Form:
        out: list[Form] = []
        for id in ids:
            if self.groups[name].pending.pop(id, None) is None:
                out.append(-1)
            else:
                out.append(2 if self.delete(policy, id) == 2 else 1)
        return out

    def xnack(
        self, name: bytes, mode: bytes, ids: list[int], retrycount: int | None, force: bool
    ) -> int:
        group = self.groups[name]
        done = 0
        for id in ids:
            each = group.pending.get(id)
            if each is None:
                if not force or id not in self.entries:
                    continue
                each = Waiting(b"", 0, 0)
            group.nacks += 1
            count = {b"SILENT": max(each.count - 1, 0), b"FAIL": each.count, b"FATAL": COUNT_MAX}[
                mode
            ]
            group.pending[id] = Waiting(
                b"", 0, count if retrycount is None else retrycount, group.nacks
            )
            done += 1
        return done

    def xclaim(
        self, name: bytes, consumer: bytes, min_idle: int, ids: list[int], time: int | None,
        retrycount: int | None, force: bool, justid: bool,
    ) -> Form:  # fmt: skip
        group = self.groups[name]
        group.consumers.add(consumer)
        at = self.now if time is None or not 0 <= time <= self.now else time
        out: list[Form] = []
        for id in ids:
            each = group.pending.get(id)
            if id not in self.entries:
                group.pending.pop(id, None)
                continue
            if each is None:
                if not force:
                    continue
                each = Waiting(b"", 0, 1, nacked=1)
            if not each.nacked and self.now - each.time < min_idle:
                continue
            self.take(group, id, each, consumer, at, retrycount, justid)
            out.append(id_text(id) if justid else self.entry(id))
        return out

    def take(
        self, group: Readers, id: int, each: Waiting, consumer: bytes, at: int, retrycount: int | None, justid: bool
    ) -> None:  # fmt: skip
        count = each.count if justid else min(each.count + 1, COUNT_MAX)
        group.pending[id] = Waiting(consumer, at, count if retrycount is None else retrycount)

    def xautoclaim(
        self, name: bytes, consumer: bytes, min_idle: int, start: int, count: int, justid: bool
    ) -> Form:
        group = self.groups[name]
        group.consumers.add(consumer)
        looked = 0
        taken: list[Form] = []
        gone: list[Form] = []
        cursor = b"0-0"
        for id in [id for id in sorted(group.pending) if id >= start]:
            if looked == 10 * count or len(taken) + len(gone) == count:
                cursor = id_text(id)
                break
            looked += 1
            each = group.pending[id]
            if id not in self.entries:
                del group.pending[id]
                gone.append(id_text(id))
            elif each.nacked or self.now - each.time >= min_idle:
                self.take(group, id, each, consumer, self.now, None, justid)
                taken.append(id_text(id) if justid else self.entry(id))
        return [cursor, taken, gone]

    def delconsumer(self, name: bytes, consumer: bytes) -> int:
        group = self.groups[name]
        mine = [
            id for id, each in group.pending.items() if each.owner == consumer and not each.nacked
        ]
        for id in mine:
            del group.pending[id]
        group.consumers.discard(consumer)
        return len(mine)

    def xpending(self, name: bytes) -> Form:
        group = self.groups[name]
        return [
            [id_text(id), each.owner, -1 if each.nacked else self.now - each.time, each.count]
            for id, each in sorted(group.pending.items())
        ]
