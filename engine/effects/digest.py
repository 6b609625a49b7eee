"""Digest: one canonical BLAKE2b over a whole state; equal for equal states, whatever their history.

Included: databases, keys, expiries, strings, stream counters, dedup tables, entries and node bounds (slot count,
deleted slots, size), groups, consumers, pending entries, the order of the NACK zone. Not included: seen-times (they are
not logged), stream numbers, block ordinals, the epoch, whether APPEND made a string `raw`, caches.

The hash input is a sequence of msgpack values. Each is self-delimiting, so no two states give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any

import msgpack

from tidelog.engine.groups.group import Group
from tidelog.engine.keys.state import State
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.stream import Stream

DIGEST_BYTES = 32
_PENDING_PER_PART = 4096  # entries hashed at a time, so that a million of them need little memory


def digest(state: State) -> str:
    """The digest of a state as 64 hex digits. Reads every entry: O(size of the state). Raises CorruptBlock."""
    total = blake2b(digest_size=DIGEST_BYTES)
    for part in _state_parts(state):
        total.update(msgpack.packb(part))
    return total.hexdigest()


def _state_parts(state: State) -> Iterator[Any]:
    for number, database in enumerate(state.databases):
        for key, value, expire_at in database.keys.walk():
            yield number, key, expire_at
            if isinstance(value, bytes):
                yield value
            else:
                yield from _stream_parts(value)


def _stream_parts(stream: Stream) -> Iterator[Any]:
    yield (
        stream.length,
        _id(stream.last_id),
        _id(stream.max_deleted_id),
        stream.entries_added,
        stream.nodes(),
        len(stream.groups),
    )
    idmp = stream.idmp or Idmp()
    yield idmp.duration, idmp.maxsize, idmp.added, idmp.duplicates
    yield [
        (pid, iid, _id(entry_id), *(() if time is None else (time,)))
        for pid, iid, entry_id, time in idmp.records()
    ]
    for node in stream.walk():
        ids, rows = node.ids(), node.rows()
        size = node.bytes_of(ids, rows)
        yield node.count, _bits(node.deleted), size, _id(node.first), _id(node.last)
        if node.deleted:
            live = node.live_slots()
            ids, rows = [ids[slot] for slot in live], [rows[slot] for slot in live]
        yield _ids(ids)
        yield rows
    for name in sorted(stream.groups):
        yield from _group_parts(name, stream.groups[name])


def _group_parts(name: bytes, group: Group) -> Iterator[Any]:
    pending = group.pending
    consumers = [group.consumers[name] for name in sorted(group.consumers)]
    yield name, _id(group.last_id), group.entries_read, len(pending), pending.nacked()
    yield [(consumer.name, consumer.active_time) for consumer in consumers]
    # The NACK zone is the start of the time order. Times in the zone only encode the order of release, so hash the IDs
    # in that order and not the times.
    nacked = [entry_id for _, entry_id in islice(pending.by_age(), pending.nacked())]
    yield _ids(nacked)
    names = {consumer.index: consumer.name for consumer in consumers}
    entries = pending.entries()
    while page := list(islice(entries, _PENDING_PER_PART)):
        ids, times, owners, counts = zip(*page, strict=True)
        yield _ids(ids)
        yield [max(time, 0) if owner in names else 0 for time, owner in zip(times, owners)]
        yield [names.get(owner) for owner in owners]
        yield counts


def _id(entry_id: int) -> bytes:
    return entry_id.to_bytes(16, "big")


def _ids(ids: Iterable[int]) -> bytes:
    return b"".join([entry_id.to_bytes(16, "big") for entry_id in ids])


def _bits(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "big")
