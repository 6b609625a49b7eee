"""Writing RDB: numbers, strings, streams of types 19, 21, 26 and 27, whole files and payloads of DUMP.

Strings are written as they are, never compressed: every Redis reads that. A stream is written node by node, so that
memory holds one node, and one page of pending entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import groupby, islice
from struct import Struct
from typing import Final

from tidelog.engine.commands.rewrite import Kind, Lost
from tidelog.engine.groups.group import NEVER_ACTIVE, Consumer, Group
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import State
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.file import AUX, END, EXPIRE_MS, MAGIC, SELECT, payload_of
from tidelog.engine.rdb.listpack import write_columns, write_node
from tidelog.engine.rdb.skip import STRING
from tidelog.engine.rdb.stream import EIGHT_EIGHT, EIGHT_SIX, SEVEN, SEVEN_TWO, VERSIONS
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.stream import Stream

_TIME = Struct("<q").pack
_PENDING = Struct(">16s").pack
_BIG: Final = 1 << 64
_PAGE: Final = 1024  # pending entries written at once


class RdbTarget(Enum):
    """The version of Redis that will load the file."""

    REDIS_7_0 = "7.0"
    REDIS_7_2 = "7.2"
    REDIS_8_6 = "8.6"
    REDIS_8_8 = "8.8"

    @property
    def version(self) -> int:
        """The version of the format."""
        return VERSIONS[_KINDS[self]]

    @property
    def kind(self) -> int:
        """The type of streams."""
        return _KINDS[self]


_KINDS: Final = {
    RdbTarget.REDIS_7_0: SEVEN,
    RdbTarget.REDIS_7_2: SEVEN_TWO,
    RdbTarget.REDIS_8_6: EIGHT_SIX,
    RdbTarget.REDIS_8_8: EIGHT_EIGHT,
}


def length(value: int) -> bytes:
    """A length, 0 to 2**64 - 1."""
    if value < 0x40:
        return bytes((value,))
    if value < 0x4000:
        return bytes((0x40 | value >> 8, value & 0xFF))
    if value < 1 << 32:
        return b"\x80" + value.to_bytes(4, "big")
    return b"\x81" + value.to_bytes(8, "big")


def string(value: bytes) -> bytes:
    """A string."""
    return length(len(value)) + value


def rdb_file(state: State, lost: Lost, target: RdbTarget) -> Iterator[bytes]:
    """The pieces of a file with everything that `state` holds. Counts in `lost` what the target has no place for.

    `state` must not change until the generator is exhausted. Raises CorruptBlock.
    """
    crc = 0
    for piece in _parts(state, lost, target):
        crc = crc64(piece, crc)
        yield piece
    yield crc.to_bytes(8, "little")


def _parts(state: State, lost: Lost, target: RdbTarget) -> Iterator[bytes]:
    yield MAGIC + b"%04d" % target.version
    yield bytes((AUX,)) + string(b"redis-ver") + string(target.value.encode() + b".0")
    for number, database in enumerate(state.databases):
        selected = False
        for key, value, expire_at in database.keys.walk():
            if not selected:
                yield bytes((SELECT,)) + length(number)
                selected = True
            head = b"" if expire_at == NO_EXPIRY else bytes((EXPIRE_MS,)) + _TIME(expire_at)
            if isinstance(value, bytes):
                yield head + bytes((STRING,)) + string(key) + string(value)
            else:
                yield head + bytes((target.kind,)) + string(key)
                yield from StreamForm(number, key, value, lost, target).parts()
    yield bytes((END,))


def dump(key: bytes, value: Stream | bytes, target: RdbTarget, lost: Lost, db: int = 0) -> bytes:
    """The payload of DUMP for a value."""
    if isinstance(value, bytes):
        return payload_of(STRING, string(value), target.version)
    parts = StreamForm(db, key, value, lost, target).parts()
    return payload_of(target.kind, b"".join(parts), target.version)


def oldest(value: Stream | bytes) -> RdbTarget:
    """The oldest version of Redis that loses nothing of a value that a newer one would keep."""
    if isinstance(value, bytes):
        return RdbTarget.REDIS_7_0
    groups = value.groups.values()
    if any(group.pending.nacked() for group in groups):
        return RdbTarget.REDIS_8_8
    if value.idmp is not None:
        return RdbTarget.REDIS_8_6
    consumers = (consumer for group in groups for consumer in group.consumers.values())
    if any(consumer.active_time != consumer.seen_time for consumer in consumers):
        return RdbTarget.REDIS_7_2
    return RdbTarget.REDIS_7_0


class StreamForm:
    """The value of one stream."""

    def __init__(self, db: int, key: bytes, stream: Stream, lost: Lost, target: RdbTarget) -> None:
        self._db = db
        self._key = key
        self._stream = stream
        self._lost = lost
        self._kind = target.kind

    def _lose(self, kind: Kind, count: int = 1) -> None:
        self._lost.add(kind, self._db, self._key, count)

    def parts(self) -> Iterator[bytes]:
        """The pieces of the value, in order."""
        stream = self._stream
        yield length(stream.nodes())
        for node in stream.walk():
            columns = None if node.deleted else node.columns()
            if columns is None:
                data = write_node(node.ids(), node.rows(), node.deleted)
            else:
                data = write_columns(node.ids(), *columns)
            yield string(_id(node.first)) + string(data)
        yield b"".join(
            (
                *(length(stream.length), _pair(stream.last_id), _pair(stream.first_id())),
                *(_pair(stream.max_deleted_id), length(stream.entries_added)),
                length(len(stream.groups)),
            )
        )
        for name in sorted(stream.groups):
            yield from self._group(name, stream.groups[name])
        if self._kind >= EIGHT_SIX:
            yield from self._dedup(stream.idmp or Idmp())
        elif stream.idmp is not None:
            idmp = stream.idmp
            fresh = Idmp()
            changed = (idmp.duration, idmp.maxsize) != (fresh.duration, fresh.maxsize)
            self._lose(Kind.DEDUP, sum(1 for _ in idmp.records()) + changed)
            self._lose(Kind.DEDUP_COUNTERS, bool(idmp.added or idmp.duplicates))

    def _group(self, name: bytes, group: Group) -> Iterator[bytes]:
        pending = group.pending
        read = group.entries_read
        if read > self._stream.entries_added and self._kind >= EIGHT_SIX:
            # Redis 8 refuses to load such a group.
            read = self._stream.entries_added
            self._lose(Kind.ENTRIES_READ)
        yield string(name) + _pair(group.last_id) + length(read % _BIG) + length(len(pending))
        entries = pending.entries()
        while page := list(islice(entries, _PAGE)):
            yield b"".join(
                [
                    _id(entry_id) + _TIME(max(time, 0)) + length(count)
                    for entry_id, time, _, count in page
                ]
            )
        nacked = pending.nacked()
        consumers = group.listed()
        if nacked and self._kind < EIGHT_EIGHT:
            yield from self._adopting(group, consumers)
            return
        yield length(len(consumers))
        for consumer in consumers:
            yield from self._consumer(group, consumer, pending.held_by(consumer.index))
            yield from _owned(group, consumer.index)
        if self._kind >= EIGHT_EIGHT:
            yield length(nacked)
            released = islice(pending.by_age(), nacked)
            while some := list(islice(released, _PAGE)):
                yield b"".join([_id(entry_id) for _, entry_id in some])

    def _consumer(self, group: Group, consumer: Consumer, held: int) -> Iterator[bytes]:
        head = string(consumer.name) + _TIME(consumer.seen_time)
        if self._kind >= SEVEN_TWO:
            head += _TIME(consumer.active_time)
        else:
            adopts = not consumer.index
            self._lose(Kind.ACTIVE_TIME, not adopts and consumer.active_time != consumer.seen_time)
        yield head + length(held)

    def _adopting(self, group: Group, consumers: list[Consumer]) -> Iterator[bytes]:
        """The consumers for a Redis that knows no released entries: the consumer '' gets them, delivered at time 0.

        Its `>` never returns an entry again, so consumers claim them from there.
        """
        released = group.pending.nacked()
        self._lose(Kind.NACKED, released)
        orphans = sorted(entry_id for _, entry_id in islice(group.pending.by_age(), released))
        heir = group.consumers.get(b"")
        if heir is None:
            heir = Consumer(b"", 0, 0, NEVER_ACTIVE)
            consumers = [heir, *consumers]
        yield length(len(consumers))
        for consumer in consumers:
            if consumer is not heir:
                yield from self._consumer(group, consumer, group.pending.held_by(consumer.index))
                yield from _owned(group, consumer.index)
                continue
            own = (
                []
                if not consumer.index
                else [each for part in _pages(group, consumer.index) for each in part]
            )
            every = sorted((*own, *orphans))
            yield from self._consumer(group, consumer, len(every))
            yield b"".join(map(_id, every))

    def _dedup(self, idmp: Idmp) -> Iterator[bytes]:
        yield length(idmp.duration) + length(idmp.maxsize) + length(len(idmp.producers))
        for pid, group in groupby(idmp.records(), lambda record: record[0]):
            records = list(group)
            iids = [string(iid) + _pair(entry_id) for _, iid, entry_id, _ in records]
            yield string(pid) + length(len(iids)) + b"".join(iids)
            self._lose(Kind.DEDUP_TIMES, sum(time is not None for *_, time in records))
        yield length(idmp.added) + length(idmp.duplicates)


def _owned(group: Group, owner: int) -> Iterator[bytes]:
    for page in _pages(group, owner):
        yield b"".join(map(_id, page))


def _pages(group: Group, owner: int) -> Iterator[list[int]]:
    """The IDs that a consumer has pending, ascending."""
    start = 0
    while True:
        page = group.pending.page(start, _BIG * _BIG - 1, _PAGE, owner)
        if page:
            yield [row[0] for row in page]
        if len(page) < _PAGE or page[-1][0] == _BIG * _BIG - 1:
            return
        start = page[-1][0] + 1


def _id(entry_id: int) -> bytes:
    return entry_id.to_bytes(16, "big")


def _pair(entry_id: int) -> bytes:
    return length(entry_id >> 64) + length(entry_id & _BIG - 1)
