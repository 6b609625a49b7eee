"""The small tables: streams, groups, consumers, pending, keys, as Arrow batches.

They are read through the engine's own loading of streams, so they say what its commands say of a stream at the
snapshot's moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tidelog.engine.cold import ColdStore
from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.ids import text
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.streams.frozen_stream import load_stream
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stored import stored_nodes, stored_stream
from tidelog.engine.streams.stream import Stream
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.catalog import Key

Row = tuple[Any, ...]


def batches(
    table: str, sealed: Sealed, keys: Iterator[Key], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table for these keys, with the wanted columns. Raises CorruptBlock."""
    known = list(schemas.TABLES[table])
    at = [known.index(name) if name in known else None for name in columns]
    kinds = schemas.columns_of(table)
    where: Mapping[str, Any] = {
        "snapshot": sealed.place.name,
        "snapshot_lsn": sealed.manifest.lsn,
    }
    held: list[Row] = []

    def batch() -> pa.RecordBatch:
        arrays = [
            pa.repeat(pa.scalar(where[name], kinds[name]), len(held))
            if place is None
            else pa.array([row[place] for row in held], kinds[name])
            for name, place in zip(columns, at)
        ]
        held.clear()
        return pa.RecordBatch.from_arrays(arrays, list(columns))

    for key in keys:
        for row in _ROWS[table](sealed.rows, sealed.manifest.moment_ms, key):
            held.append(row)
            if len(held) >= rows:
                yield batch()
    if held:
        yield batch()


def _key_rows(cold: ColdStore, now: int, key: Key) -> Iterator[Row]:
    expires_ms = _expires_ms(key)
    expires = None if expires_ms is None else _time(expires_ms)
    if key.string is not None:
        yield key.db, key.key, "string", expires, len(key.string), expires_ms
    elif key.number is not None:
        stored = stored_stream(cold, key.number)
        size = sum(node.length for node in stored_nodes(cold, stored, data=False))
        yield key.db, key.key, "stream", expires, size, expires_ms


def _stream_rows(cold: ColdStore, now: int, key: Key) -> Iterator[Row]:
    if key.number is None:
        return
    stream = load_stream(cold, key.number)
    first, expires_ms = stream.first_id(), _expires_ms(key)
    # A stream that never used its table has the limits that XINFO names where nobody configured others.
    idmp = stream.idmp or Idmp()
    yield (
        key.db,
        key.key,
        key.number,
        stream.length,
        _id(first) if stream.length else None,
        _id(stream.last_id),
        _id(first),
        _id(stream.max_deleted_id),
        stream.entries_added,
        stream.nodes(),
        len(stream.groups),
        None if expires_ms is None else _time(expires_ms),
        idmp.duration,
        idmp.maxsize,
        *idmp.tracked(now),
        idmp.added,
        idmp.duplicates,
        expires_ms,
    )


def _group_rows(cold: ColdStore, now: int, key: Key) -> Iterator[Row]:
    for stream, group in _groups(cold, key):
        read = group.entries_read
        yield (
            key.db,
            key.key,
            group.name,
            _id(group.last_id),
            None if read == UNKNOWN else read,
            lag(stream, group),
            len(group.pending),
            group.pending.nacked(),
            len(group.consumers),
        )


def _consumer_rows(cold: ColdStore, now: int, key: Key) -> Iterator[Row]:
    for _, group in _groups(cold, key):
        for consumer in group.listed():
            yield (
                key.db,
                key.key,
                group.name,
                consumer.name,
                group.pending.held_by(consumer.index),
                _time(consumer.seen_time),
                _time(consumer.active_time),
            )


def _pending_rows(cold: ColdStore, now: int, key: Key) -> Iterator[Row]:
    for stream, group in _groups(cold, key):
        for entry_id, time, owner, count in group.pending.entries():
            released = owner == NOBODY
            yield (
                key.db,
                key.key,
                group.name,
                _id(entry_id),
                None if released else group.owner_name(owner),
                None if released else _time(time),
                count,
                stream.find(entry_id) is not None,
            )


def _groups(cold: ColdStore, key: Key) -> Iterator[tuple[Stream, Group]]:
    """The groups of a stream, by name. Raises CorruptBlock at one that cannot be read."""
    if key.number is None:
        return
    stream = load_stream(cold, key.number)
    for name in sorted(stream.groups):
        yield stream, stream.groups[name]


def _expires_ms(key: Key) -> int | None:
    return None if key.expire_at == NO_EXPIRY else key.expire_at


def _id(entry_id: int) -> str:
    return text(entry_id).decode()


def _time(ms: int) -> int | None:
    """A time in microseconds; None for none, and beyond the range of timestamps."""
    return ms * 1000 if 0 <= ms <= schemas.TIME_MS_MAX else None


_ROWS: Final[Mapping[str, Callable[[ColdStore, int, Key], Iterator[Row]]]] = {
    "keys": _key_rows,
    "streams": _stream_rows,
    "groups": _group_rows,
    "consumers": _consumer_rows,
    "pending": _pending_rows,
}
