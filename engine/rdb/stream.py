"""Streams in an RDB image: types 15 (Redis 5.0), 19 (7.0), 21 (7.2), 26 (8.6) and 27 (8.8).

    L nodes, each S first ID (16 bytes), S listpack | L length | L,L last ID
    from 19 on   L,L first ID | L,L max deleted ID | L entries added
    L groups, each S name | L,L last ID | from 19 on L entries read
        L pending, each ID (16 bytes), time (8 bytes, little-endian), L count
        L consumers, each S name, seen time (8 bytes), from 21 on active time (8 bytes), L pending, each ID (16 bytes)
        from 27 on   L released, each ID (16 bytes), in the order of their release
    from 26 on   L duration, L maxsize, L producers, each S pid, L iids, each S iid, L,L ID | L added | L duplicates

L is a length, S a string (engine.rdb.source). No server that writes 26 or 27 was at hand; these two are as public
descriptions of the format have them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import Final

from tidelog.engine.errors import echo
from tidelog.engine.groups.chunk_rows import Column
from tidelog.engine.idlist import KEY_BASE, MS_BITS, SEQ_BITS, id_of
from tidelog.engine.ids import text
from tidelog.engine.integers import INT64_MAX
from tidelog.engine.rdb.facts import (
    NO_OWNER,
    ConsumerFact,
    Counters,
    DedupFact,
    Fact,
    GroupFact,
)
from tidelog.engine.rdb.listpack import Node, read_node
from tidelog.engine.rdb.source import ID_BYTES, Source
from tidelog.engine.streams.node import highest_live

FIVE: Final = 15
SEVEN: Final = 19  # first ID, max deleted ID, entries added, entries read
SEVEN_TWO: Final = 21  # active time
EIGHT_SIX: Final = 26  # dedup tables
EIGHT_EIGHT: Final = 27  # released entries
# type -> the version of the format that first had it
VERSIONS: Final = {FIVE: 9, SEVEN: 10, SEVEN_TWO: 11, EIGHT_SIX: 13, EIGHT_EIGHT: 14}
KINDS: Final = frozenset(VERSIONS)

_PENDING_BYTES: Final = 33  # of one pending entry at most
_IDS_AT_ONCE: Final = 4096
_ID_AND_TIME = Struct("<8x8xq").unpack_from
_ID = Struct(">QQ").unpack_from


def read_stream(source: Source, kind: int) -> Iterator[Fact]:
    """The facts of a stream: its nodes, its counters, its groups, and from type 26 on its dedup tables.

    The caller takes each before it asks for the next. Raises RdbError.
    """
    live = 0
    before = -1
    for _ in range(source.length()):
        at = source.offset
        first = _first_id(source)
        data = source.string()
        try:
            node = read_node(first, data)
            _in_order(node, before, first)
        except ValueError as error:
            source.damaged(f"the node that begins with ID {text(first).decode()}: {error}", at)
        alive = len(node.ids) - node.deleted.bit_count()
        if alive:
            before = node.ids[highest_live(node.deleted, len(node.ids))]
            live += alive
            yield node
    counters = _counters(source, kind)
    if counters.length != live:
        source.damaged(f"the stream states {counters.length} entries, but its nodes have {live}")
    if counters.last_id < before:
        source.damaged(
            f"the stream's last ID {text(counters.last_id).decode()} is below its entry {text(before).decode()}"
        )
    yield counters
    names = set()
    for _ in range(source.length()):
        at = source.offset
        group = _Group(source, kind).read()
        if group.name in names:
            source.damaged(f"the group {echo(group.name)!r} comes twice", at)
        names.add(group.name)
        yield group
    if kind >= EIGHT_SIX:
        yield _dedup(source)


def _first_id(source: Source) -> int:
    at = source.offset
    raw = source.string()
    if len(raw) != ID_BYTES:
        source.damaged(f"the key of a node has {len(raw)} bytes, not {ID_BYTES}", at)
    return int.from_bytes(raw, "big")


def _in_order(node: Node, before: int, first: int) -> None:
    """Raise ValueError unless the live IDs ascend. Remove deleted slots that are in the way.

    After XSETID a node of Redis can have a deleted slot whose ID is above those that follow. Our nodes cannot, and
    nothing but the node's size depends on such a slot.
    """
    ids, deleted = node.ids, node.deleted
    if not deleted and ids:
        if not (before < ids[0] and all(map(int.__lt__, ids, ids[1:]))):
            raise ValueError("the IDs do not ascend")
        return
    keep: list[int] = []
    top = before
    for slot, entry_id in enumerate(ids):
        if not deleted >> slot & 1:
            while keep and ids[keep[-1]] >= entry_id and deleted >> keep[-1] & 1:
                keep.pop()
            if entry_id <= top:
                raise ValueError("the IDs do not ascend")
            top = entry_id
            keep.append(slot)
        elif entry_id > (ids[keep[-1]] if keep else before):
            keep.append(slot)
    if len(keep) != len(ids):
        node.deleted = sum((deleted >> slot & 1) << place for place, slot in enumerate(keep))
        node.ids = [ids[slot] for slot in keep]
        node.rows = [node.rows[slot] for slot in keep]


def _counters(source: Source, kind: int) -> Counters:
    length, last = source.length(), source.id()
    if kind < SEVEN:
        return Counters(length, last, None, None, None)
    return Counters(length, last, source.id(), source.id(), min(source.length(), INT64_MAX))


class _Group:
    """Reads one group. Pending entries are kept as columns of 8 bytes: a million of them take 28 MB."""

    def __init__(self, source: Source, kind: int) -> None:
        self._source = source
        self._kind = kind
        self._wide = False
        self._ids: Column = array("q")
        self._times = array("q")
        self._counts = array("q")

    def read(self) -> GroupFact:
        source, kind = self._source, self._kind
        name = source.string()
        last = source.id()
        entries_read = source.signed() if kind >= SEVEN else None
        at = source.offset
        self._pending(source.length())
        owners = array("I", bytes(4 * len(self._ids)))
        consumers: list[ConsumerFact] = []
        names = set()
        for number in range(1, source.length() + 1):
            place = source.offset
            consumer = source.string()
            seen = source.time()
            active = source.time() if kind >= SEVEN_TWO else None
            if consumer in names:
                source.damaged(
                    f"group {echo(name)!r}: the consumer {echo(consumer)!r} comes twice", place
                )
            names.add(consumer)
            consumers.append(ConsumerFact(consumer, max(seen, 0), active))
            self._own(owners, number, source.length())
        nacked = self._released(owners, source.length()) if kind >= EIGHT_EIGHT else []
        free = owners.count(NO_OWNER) - len(nacked)
        if free:
            source.damaged(
                f"group {echo(name)!r}: {free} pending entries belong to no consumer", at
            )
        return GroupFact(
            name=name,
            last_id=last,
            entries_read=entries_read,
            wide=self._wide,
            ids=self._ids,
            times=self._times,
            counts=self._counts,
            owners=owners,
            consumers=consumers,
            nacked=nacked,
        )

    def _pending(self, count: int) -> None:
        source = self._source
        times, counts = self._times, self._counts
        before = -1
        ms_end, seq_end = 1 << MS_BITS, 1 << SEQ_BITS
        while count:
            buffer, at = source.window()
            stop = len(buffer) - _PENDING_BYTES
            while count and at <= stop:
                ms, seq = _ID(buffer, at)
                (time,) = _ID_AND_TIME(buffer, at)
                head = buffer[at + 24]
                at += 25
                if head >= 0x40:
                    source.advance(at - 1)
                    head = source.length()
                    buffer, at = source.window()
                    stop = len(buffer) - _PENDING_BYTES
                entry_id = ms << 64 | seq
                if entry_id <= before:
                    source.advance(at)
                    source.damaged("the pending entries do not ascend")
                before = entry_id
                if not self._wide:
                    if ms < ms_end and seq < seq_end:
                        self._ids.append((ms << SEQ_BITS | seq) - KEY_BASE)
                    else:
                        self._widen()
                        self._ids.append(entry_id)
                else:
                    self._ids.append(entry_id)
                times.append(time)
                counts.append(head if head <= INT64_MAX else INT64_MAX)
                count -= 1
            source.advance(at)
            if count:  # the window ends inside an entry
                entry_id, time, delivered = source.raw_id(), source.time(), source.length()
                if entry_id <= before:
                    source.damaged("the pending entries do not ascend")
                before = entry_id
                key = self._key(entry_id)
                if key is None:
                    self._widen()
                    key = entry_id
                self._ids.append(key)
                times.append(time)
                counts.append(min(delivered, INT64_MAX))
                count -= 1

    def _key(self, entry_id: int) -> int | None:
        """The ID as a value of the column; None if the column must become wide for it."""
        if self._wide:
            return entry_id
        ms, seq = entry_id >> 64, entry_id & (1 << 64) - 1
        if ms >> MS_BITS or seq >> SEQ_BITS:
            return None
        return (ms << SEQ_BITS | seq) - KEY_BASE

    def _widen(self) -> None:
        if not self._wide:
            self._wide = True
            self._ids = list(map(id_of, self._ids))

    def _own(self, owners: array[int], number: int, count: int) -> None:
        """Read the pending entries of a consumer."""
        source, ids = self._source, self._ids
        place = 0
        end = len(ids)
        while count:
            some = min(count, _IDS_AT_ONCE)
            at = source.offset
            raw = source.take(some * ID_BYTES)
            for ms, seq in Struct(">QQ").iter_unpack(raw):
                key = self._key(ms << 64 | seq)
                if key is not None and not (place < end and ids[place] == key):
                    place = bisect_left(ids, key, place)
                if key is None or place == end or ids[place] != key or owners[place]:
                    source.damaged(
                        f"a consumer has the pending entry {ms}-{seq}, which its group does not have, or not once",
                        at,
                    )
                owners[place] = number
                place += 1
            count -= some

    def _released(self, owners: array[int], count: int) -> list[int]:
        source, ids = self._source, self._ids
        out: list[int] = []
        seen = set()
        for _ in range(count):
            at = source.offset
            entry_id = source.raw_id()
            key = self._key(entry_id)
            place = len(ids) if key is None else bisect_left(ids, key)
            if (
                key is None
                or place == len(ids)
                or ids[place] != key
                or owners[place]
                or key in seen
            ):
                source.damaged(
                    f"the released entry {text(entry_id).decode()} is not pending, or has a consumer",
                    at,
                )
            seen.add(key)
            out.append(key)
        return out


def _dedup(source: Source) -> DedupFact:
    duration, maxsize = source.length(), source.length()
    producers = []
    names = set()
    for _ in range(source.length()):
        at = source.offset
        pid = source.string()
        if pid in names:
            source.damaged(f"the producer {echo(pid)!r} comes twice", at)
        names.add(pid)
        iids = [(source.string(), source.id()) for _ in range(source.length())]
        if len({iid for iid, _ in iids}) != len(iids):
            source.damaged(f"the producer {echo(pid)!r} has an idempotency ID twice", at)
        if iids:
            producers.append((pid, iids))
    added, duplicates = source.length(), source.length()
    return DedupFact(
        duration, maxsize, producers, min(added, INT64_MAX), min(duplicates, INT64_MAX)
    )
