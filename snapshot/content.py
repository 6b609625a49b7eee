"""Count the contents of a checkpoint file by reading all of it: to write a manifest, or to compare with one."""

from __future__ import annotations

import time
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.disk.interface import Disk
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot.manifest import (
    KEY_BYTES_MAX,
    LARGEST_MAX,
    Counts,
    DatabaseCount,
    Manifest,
    StreamCount,
)
from tidelog.snapshot.rows.opened import open_copy

# Pause after this many keys. One stream takes up to 20 us, and background work must not keep the interpreter for
# 0.5 ms.
PAUSE_KEYS: Final = 16
PAUSE_S: Final = 0.00005


class Content(NamedTuple):
    """The contents of a checkpoint, as read from its file. `now_ms` is unix ms."""

    uuid: bytes
    position: Position
    epochs: tuple[Epoch, ...]
    now_ms: int
    counts: Counts


def content_of(disk: Disk, folder: Path, created_ms: int) -> Content:
    """Count the keys, streams and groups of the checkpoint in `folder`, as a snapshot made at `created_ms` has them.

    Raises what `open_copy` raises, and CorruptBlock.
    """
    opened = open_copy(disk, folder)
    try:
        meta = opened.meta
        return Content(
            meta.uuid,
            meta.position,
            meta.epochs,
            meta.now,
            count(opened.state(), max(meta.now, created_ms)),
        )
    finally:
        opened.close()


def count(state: State, moment_ms: int) -> Counts:
    """Count the keys of a state that have not expired at a moment, and keep none in memory. Raises CorruptBlock."""
    databases: list[DatabaseCount] = []
    largest: list[tuple[int, int, bytes, StreamCount]] = []
    streams = entries = groups = pending = passed = 0
    for number, database in enumerate(state.databases):
        keys = expires = 0
        for key in database.keys:
            passed += 1
            if passed % PAUSE_KEYS == 0:
                time.sleep(PAUSE_S)
            value, expire_at = database.keys.look(key)
            if expire_at != NO_EXPIRY:
                if expire_at < moment_ms:
                    continue
                expires += 1
            keys += 1
            if not isinstance(value, Stream):
                continue
            waiting = sum(len(group.pending) for group in value.groups.values())
            streams += 1
            entries += value.length
            groups += len(value.groups)
            pending += waiting
            if len(key) > KEY_BYTES_MAX:
                continue
            row = StreamCount(number, key, value.length, len(value.groups), waiting)
            # When the heap is full, it drops the least item: the one with the fewest entries; among equals, the
            # greatest database, then the greatest key.
            item = (row.entries, -number, _backwards(key), row)
            if len(largest) < LARGEST_MAX:
                heappush(largest, item)
            else:
                heappushpop(largest, item)
        if keys:
            databases.append(DatabaseCount(number, keys, expires))
    rows = sorted((item[3] for item in largest), key=lambda row: (-row.entries, row.db, row.key))
    return Counts(tuple(databases), streams, entries, groups, pending, tuple(rows))


def _backwards(key: bytes) -> bytes:
    """Bytes that sort in reverse key order. The two 0xff make a key sort after the keys that it is a prefix of."""
    return bytes(255 - byte for byte in key) + b"\xff\xff"


_COUNTED: Final = {
    "streams": "streams",
    "entries": "entries",
    "groups": "groups",
    "pending": "pending entries",
}


def miscounted(manifest: Manifest, state: State) -> list[str]:
    """Describe each difference between the counts of a manifest and those of the data. Raises CorruptBlock.

    An earlier version counted the keys, too, that had expired.
    """
    texts = differences(manifest.counts, count(state, manifest.moment_ms))
    return texts if texts and differences(manifest.counts, count(state, 0)) else []


def differences(stated: Counts, found: Counts) -> list[str]:
    """Describe each difference between the counts of a manifest (`stated`) and those that were read (`found`)."""
    texts = [
        f"the data has {getattr(found, name)} {shown}, but the manifest says {getattr(stated, name)}"
        for name, shown in _COUNTED.items()
        if getattr(stated, name) != getattr(found, name)
    ]
    dbs = {row.db: row for row in stated.databases}, {row.db: row for row in found.databases}
    for db in sorted(dbs[0].keys() | dbs[1].keys()):
        told, there = (rows.get(db, DatabaseCount(db, 0, 0)) for rows in dbs)
        texts += [
            f"database {db}: the data has {getattr(there, name)} {shown}, but the manifest says {getattr(told, name)}"
            for name, shown in (("keys", "keys"), ("expires", "keys that expire"))
            if getattr(there, name) != getattr(told, name)
        ]
    if stated.largest != found.largest:
        one, other = set(stated.largest), set(found.largest)
        for row in sorted((one ^ other) or {stated.largest[0]}, key=lambda row: (row.db, row.key)):
            where = (
                "is listed in the manifest, but missing from the data"
                if row in one
                else ("is in the data, but not listed in the manifest")
            )
            texts.append(
                f"database {row.db}: stream {row.key!r} with {row.entries} entries, {row.groups} groups and "
                f"{row.pending} pending entries {where}"
            )
    return texts
