"""The table `events`: every record of the log, by what happened. A record of many IDs makes one row for each.

`lsn` is the record's, `unit_end` the LSN of the last record of its unit (one command, transaction or batch), `ts` the
time of its frame, `stream` the key. The rest is null where it does not apply:

    event                                       columns
    added                                       id, fields
    delivered, claimed, reread                  group, consumer, id, delivered_at, delivery_count
    acknowledged                                group, id
    released                                    group, id, delivery_count           (XNACK)
    deleted                                     id
    trimmed                                     removed, or id of one entry that XTRIM ... ACKED removed; detail: length
    stream_created, stream_changed              detail: last_id, entries_added, max_deleted_id
    group_created, group_set, group_destroyed   group; detail: last_delivered_id, entries_read
    group_read                                  group, consumer; detail as above: XREADGROUP with NOACK, XCLAIM with
                                                LASTID. The group's position went on, and nothing became pending there
    consumer_created, consumer_deleted          group, consumer
    consumer_seen                               group, consumer. It got nothing, and exists from now on
    duplicate, idmp_recorded, idmp_changed      id, detail: pid, iid; or duration, maxsize
    key_deleted, key_set, key_appended          detail: bytes, expires_at
    renamed, copied, moved, swapped             detail: to, to_db
    restored                                    detail: bytes, expires_at. RESTORE of a string or a stream
    flushed                                     db is null if all databases were flushed
    expiry                                      detail: expires_at in unix ms, or null
    epoch                                       detail: number, incarnation. A life began
    gap                                         detail: reason, from_lsn, to_lsn. Made by the reader: records are lost

A record has the outcome of a command, not the command. XCLAIM and XREADGROUP write the same kind of record:

    the record                               its entries were
    sets the group's position to its         delivered: the last ones, as long as their delivery count is 1.
      last ID                                Others before them were claimed (XREADGROUP with CLAIM)
    sets the position to another ID          claimed, and the position is told by `group_read`
    has no position; the consumer's active   reread
      time is unchanged
    has no position                          claimed

A trim's record has the number of removed entries. The records of DEL and FLUSHALL do not have that number. COPY and
RESTORE add entries that no event lists.

Keys and names in `detail`, a JSON object, are text, or {"base64": "..."} if they are not UTF-8.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.aof.reading.reader import FrameTuple
from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.errors import UnknownEffect
from tidelog.engine.ids import SEQ_MAX
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import BATCH_BYTES, Batches, texts, times
from tidelog.spark.source.log.pieces import (
    Array,
    Pieces,
    Row,
    bytes_of,
    fields_of,
    many_of,
    nodes_of,
)

# fmt: off
EVENTS: Final = {
    "lsn": schemas.LONG,
    "unit_end": schemas.LONG,
    "ts": schemas.TIME,
    "db": schemas.INT,
    "event": schemas.TEXT,
    "stream": schemas.BYTES,
    "group": schemas.BYTES,
    "consumer": schemas.BYTES,
    "id": schemas.TEXT,
    "delivery_count": schemas.LONG,
    "delivered_at": schemas.TIME,
    "fields": schemas.PAIRS,
    "removed": schemas.LONG,
    "detail": schemas.TEXT,
}
# fmt: on


class _Record(NamedTuple):
    """One record, of `rows` rows."""

    rows: int
    lsn: int
    db: int | None
    event: str
    stream: bytes | None = None
    group: bytes | None = None
    consumer: bytes | None = None
    at: int | None = None
    removed: int | None = None
    detail: str | None = None


class _Rows:
    """Rows of records; the three lists have an item for each row."""

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self.ids: list[int | None] = []
        self.counts: list[int | None] = []
        self.fields: list[Row | None] = []

    def columns(self) -> dict[str, Array]:
        """The columns that have a value of their own in each row."""
        present = np.array([id is not None for id in self.ids], bool)
        ms = np.array([0 if id is None else id >> 64 for id in self.ids], np.uint64)
        seq = np.array([0 if id is None else id & SEQ_MAX for id in self.ids], np.uint64)
        ids = texts(ms, seq)
        return {
            "id": ids if present.all() else pc.if_else(pa.array(present), ids, None),
            "delivery_count": pa.array(self.counts, schemas.LONG),
            "fields": fields_of(self.fields),
        }


class Events:
    """Makes the batches, of about `rows` rows, from records. `ready` is called only where a unit has ended."""

    def __init__(self, rows: int) -> None:
        self._pieces = Pieces(rows)
        self._rows_max = rows
        self._path = Path()
        self._lsn = 0
        self._frames: list[tuple[int, int]] = []  # (first LSN, time in unix ms), ascending
        self._ends: list[int] = []  # LSNs of the records that end a unit, ascending
        self._rows = _Rows()
        self._parts: list[_Rows | tuple[_Record, pa.RecordBatch]] = []
        self._waiting = 0  # rows in them
        self._bytes = 0  # of the log, since the last batch was made

    def begin(self, path: Path, frames: Sequence[FrameTuple]) -> None:
        """Set the frames from which the next records come."""
        self._path = path
        self._lsn = frames[0][1]
        self._frames += [(fields[1], fields[3]) for fields in frames]
        self._bytes += bytes_of(frames)

    def take(self, records: list[Effect]) -> None:
        """Take the records that follow. Raises UnknownEffect, CorruptBlock."""
        for record in records:
            opcode = record[0]
            maker = _MAKERS.get(opcode & OPCODE)
            if maker is None:
                raise UnknownEffect(opcode)
            lsn = self._lsn
            self._lsn = lsn + 1
            if opcode & END:
                self._ends.append(lsn)
            maker(self, lsn, record)

    def put(
        self,
        record: _Record,
        ids: Sequence[int] | None = None,
        counts: Sequence[int] | None = None,
        fields: Sequence[Row] | None = None,
    ) -> None:
        """Add the rows of a record; the sequences have an item for each."""
        rows = self._rows
        rows.records.append(record)
        nothing = [None] * record.rows
        rows.ids += nothing if ids is None else ids
        rows.counts += nothing if counts is None else counts
        rows.fields += nothing if fields is None else fields
        self._waiting += record.rows

    def add_many(self, lsn: int, record: Effect) -> None:
        """Add an XADD_MANY."""
        _, db, key, ms, seq, head, _, tail = record
        nodes, before = nodes_of(self._path, record)
        first = ms << 64 | seq
        added = _Record(len(head), lsn, db, "added", key)
        if head:
            self.put(added, range(first, first + len(head)), fields=head)
        for batch in Batches(("id", "fields"), rows=self._rows_max).of(nodes):
            self._parts += (self._rows, (added._replace(rows=len(batch)), batch))
            self._rows = _Rows()
            self._waiting += len(batch)
        if tail:
            first += before
            self.put(added._replace(rows=len(tail)), range(first, first + len(tail)), fields=tail)

    def count(self, record: Effect) -> int:
        """The number of rows that `take` makes of a record. Raises UnknownEffect."""
        if record[0] & OPCODE == e.XADD_MANY:
            return many_of(record)
        before = self._waiting
        self.take([record])
        return self._waiting - before

    def gap(self, lsn: int, ts: int, detail: Mapping[str, object]) -> None:
        """Add an event `gap`: records through `lsn` are lost."""
        self._frames.append((lsn, ts))
        self._ends.append(lsn)
        self.put(_Record(1, lsn, None, "gap", detail=json.dumps(detail)))

    def ready(self, whole: bool = False) -> Iterator[pa.RecordBatch]:
        """The batches that are large enough, or all that is left."""
        if whole or self._waiting >= self._rows_max or self._bytes >= BATCH_BYTES:
            parts = [*self._parts, self._rows]
            self._parts, self._rows, self._waiting, self._bytes = [], _Rows(), 0, 0
            for part in parts:
                if isinstance(part, tuple):
                    self._pieces.put(self._batch([part[0]], _of_block(part[1])))
                elif part.records:
                    self._pieces.put(self._batch(part.records, part.columns()))
            # Keep the last frame, because more records of it may follow.
            del self._frames[:-1], self._ends[:]
        yield from self._pieces.ready(whole)

    def _batch(self, records: list[_Record], own: dict[str, Array]) -> pa.RecordBatch:
        rows, lsn, db, event, stream, group, consumer, at, removed, detail = zip(*records)
        lsns = np.array(lsn, np.int64)
        frames = np.array(self._frames, np.int64)
        ends = np.array(self._ends, np.int64)
        unit_end = ends[np.searchsorted(ends, lsns)]
        ts = frames[np.searchsorted(frames[:, 0], lsns, "right") - 1, 1]
        found = {
            "lsn": pa.array(lsns),
            "unit_end": pa.array(unit_end),
            "ts": times(ts.astype(np.uint64)),
            "db": pa.array(db, schemas.INT),
            "event": pa.array(event, schemas.TEXT),
            "stream": pa.array(stream, schemas.BYTES),
            "group": pa.array(group, schemas.BYTES),
            "consumer": pa.array(consumer, schemas.BYTES),
            "delivered_at": _times(at),
            "removed": pa.array(removed, schemas.LONG),
            "detail": pa.array(detail, schemas.TEXT),
        }
        counts = np.array(rows)
        if (counts != 1).any():
            places = pa.array(np.repeat(np.arange(len(records)), counts))
            found = {name: column.take(places) for name, column in found.items()}
        found.update(own)
        return pa.RecordBatch.from_arrays([found[name] for name in EVENTS], list(EVENTS))


def _of_block(batch: pa.RecordBatch) -> dict[str, Array]:
    return {
        "id": batch.column("id"),
        "delivery_count": pa.nulls(len(batch), schemas.LONG),
        "fields": batch.column("fields"),
    }


def _times(each: Sequence[int | None]) -> Array:
    """Unix ms as timestamps; null for times that Spark does not have."""
    known = range(schemas.TIME_MS_MIN, schemas.TIME_MS_MAX + 1)
    micros = [None if ms is None or ms not in known else ms * 1000 for ms in each]
    return pa.array(micros, schemas.LONG).view(schemas.TIME)


# --- the rows of each record

_Maker = Callable[[Events, int, Effect], None]


def _told(value: Any) -> object:
    """A value as `detail` shows it: text, or base64 if it is not UTF-8."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _detail(**values: Any) -> str:
    return json.dumps({name: _told(value) for name, value in values.items()})


def _id(ms: int, seq: int) -> str:
    return f"{ms}-{seq}"


def _known(count: int) -> int | None:
    return None if count < 0 else count


def _nothing(events: Events, lsn: int, record: Effect) -> None:
    """Make no row: the record marks the boundary of a node and changes no data."""


def _epoch(events: Events, lsn: int, record: Effect) -> None:
    detail = _detail(number=record[1], incarnation=f"{record[2]:016x}")
    events.put(_Record(1, lsn, None, "epoch", detail=detail))


def _xadd(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, ms, seq, row, *_ = record
    events.put(_Record(1, lsn, db, "added", key), (ms << 64 | seq,), fields=(row,))


def _xtrim(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, length, removed, _, _, _, ids = record
    singly = idlist.unpack(ids) if ids else []
    trimmed = _Record(1, lsn, db, "trimmed", key, detail=_detail(length=length))
    if singly:
        events.put(trimmed._replace(rows=len(singly), removed=1), singly)
    if removed > len(singly) or not singly:
        events.put(trimmed._replace(removed=removed - len(singly)))


def _xdel(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, ids, _ = record
    found = idlist.unpack(ids)
    events.put(_Record(len(found), lsn, db, "deleted", key), found)


def _xsetid(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, ms, seq, added, deleted_ms, deleted_seq = record
    detail = _detail(
        last_id=_id(ms, seq), entries_added=added, max_deleted_id=_id(deleted_ms, deleted_seq)
    )
    events.put(_Record(1, lsn, db, "stream_changed", key, detail=detail))


def _xcfgset(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, duration, maxsize = record
    detail = _detail(duration=duration, maxsize=maxsize)
    events.put(_Record(1, lsn, db, "idmp_changed", key, detail=detail))


def _xidmprecord(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, pid, iid, ms, seq, *_ = record
    detail = _detail(pid=pid, iid=iid)
    events.put(_Record(1, lsn, db, "idmp_recorded", key, detail=detail), (ms << 64 | seq,))


def _duplicate(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, pid, iid = record
    events.put(_Record(1, lsn, db, "duplicate", key, detail=_detail(pid=pid, iid=iid)))


def _position(event: str) -> _Maker:
    def put(events: Events, lsn: int, record: Effect) -> None:
        _, db, key, group, ms, seq, entries_read = record
        detail = _detail(last_delivered_id=_id(ms, seq), entries_read=_known(entries_read))
        events.put(_Record(1, lsn, db, event, key, group, detail=detail))

    return put


def _named(event: str) -> _Maker:
    """Makes an event from a record that names a stream, perhaps its group, and perhaps a consumer, in this order."""

    def put(events: Events, lsn: int, record: Effect) -> None:
        events.put(_Record(1, lsn, record[1], event, *record[2:5]))

    return put


def _deliver(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, group, consumer, ids, at, counts, now, *position = record
    found = idlist.unpack(ids)
    each = [counts] * len(found) if isinstance(counts, int) else list(counts)
    begun = len(found)  # index of the first new delivery
    if position and found and found[-1] == position[0] << 64 | position[1]:
        while begun and each[begun - 1] == 1:
            begun -= 1
    own = _Record(0, lsn, db, "", key, group, consumer, at)
    if begun:
        event = "reread" if now == -1 and not position else "claimed"
        events.put(own._replace(rows=begun, event=event), found[:begun], each[:begun])
    if begun < len(found):
        event = "delivered"
        events.put(own._replace(rows=len(found) - begun, event=event), found[begun:], each[begun:])
    elif position:
        ms, seq, entries_read = position
        detail = _detail(last_delivered_id=_id(ms, seq), entries_read=_known(entries_read))
        events.put(own._replace(rows=1, event="group_read", at=None, detail=detail))
    elif not found:
        events.put(own._replace(rows=1, event="consumer_seen", at=None))


def _xack(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, group, ids = record
    found = idlist.unpack(ids)
    events.put(_Record(len(found), lsn, db, "acknowledged", key, group), found)


def _xnack(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, group, ids, counts = record
    found = idlist.unpack(ids)
    each = [counts] * len(found) if isinstance(counts, int) else counts
    events.put(_Record(len(found), lsn, db, "released", key, group), found, each)


def _xackdel(events: Events, lsn: int, record: Effect) -> None:
    _xack(events, lsn, record[:5])
    _xdel(events, lsn, (*record[:3], *record[4:]))


def _del(events: Events, lsn: int, record: Effect) -> None:
    for key in record[2]:
        events.put(_Record(1, lsn, record[1], "key_deleted", key))


def _set(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, value, expire_at = record
    detail = _detail(bytes=len(value), expires_at=_known(expire_at))
    events.put(_Record(1, lsn, db, "key_set", key, detail=detail))


def _restored(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, _, data, expire_at = record
    detail = _detail(bytes=len(data), expires_at=_known(expire_at))
    events.put(_Record(1, lsn, db, "restored", key, detail=detail))


def _append(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, suffix = record
    events.put(_Record(1, lsn, db, "key_appended", key, detail=_detail(bytes=len(suffix))))


def _expiry(events: Events, lsn: int, record: Effect) -> None:
    at = record[3] if len(record) > 3 else None
    events.put(_Record(1, lsn, record[1], "expiry", record[2], detail=_detail(expires_at=at)))


def _renamed(events: Events, lsn: int, record: Effect) -> None:
    _, db, source, target = record
    events.put(_Record(1, lsn, db, "renamed", source, detail=_detail(to=target)))


def _copied(events: Events, lsn: int, record: Effect) -> None:
    _, db, source, target_db, target = record
    detail = _detail(to=target, to_db=target_db)
    events.put(_Record(1, lsn, db, "copied", source, detail=detail))


def _moved(events: Events, lsn: int, record: Effect) -> None:
    _, db, key, target_db = record
    events.put(_Record(1, lsn, db, "moved", key, detail=_detail(to_db=target_db)))


def _swapped(events: Events, lsn: int, record: Effect) -> None:
    events.put(_Record(1, lsn, record[1], "swapped", detail=_detail(to_db=record[2])))


def _flushed(events: Events, lsn: int, record: Effect) -> None:
    events.put(_Record(1, lsn, record[1] if len(record) > 1 else None, "flushed"))


_MAKERS: Final[Mapping[int, _Maker]] = {
    e.EPOCH: _epoch,
    e.XADD: _xadd,
    e.XADD_NODE: _xadd,
    e.XADD_IDMP: _xadd,
    e.XADD_MANY: Events.add_many,
    e.XREOPEN: _nothing,
    e.XTRIM: _xtrim,
    e.XDEL: _xdel,
    e.XSETID: _xsetid,
    e.XCFGSET: _xcfgset,
    e.XIDMPRECORD: _xidmprecord,
    e.IDMP_DUPLICATE: _duplicate,
    e.STREAM_CREATE: _named("stream_created"),
    e.XGROUP_CREATE: _position("group_created"),
    e.XGROUP_SETID: _position("group_set"),
    e.XGROUP_DESTROY: _named("group_destroyed"),
    e.XGROUP_CREATECONSUMER: _named("consumer_created"),
    e.XGROUP_DELCONSUMER: _named("consumer_deleted"),
    e.DELIVER: _deliver,
    e.XACK: _xack,
    e.XNACK: _xnack,
    e.XACKDEL: _xackdel,
    e.DEL: _del,
    e.SET: _set,
    e.APPEND: _append,
    e.PEXPIREAT: _expiry,
    e.PERSIST: _expiry,
    e.RENAME: _renamed,
    e.COPY: _copied,
    e.MOVE: _moved,
    e.SWAPDB: _swapped,
    e.FLUSHDB: _flushed,
    e.FLUSHALL: _flushed,
    e.RESTORE: _restored,
}
