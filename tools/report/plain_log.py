"""The log of a store, and its deliveries in plain Python: those that `latency.deliveries` of spark/jobs finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.aof.tail import Tail
from tidelog.disk.real import RealDisk
from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.tools import console
from tidelog.tools.aof.fields import ADDS, entries_of
from tidelog.tools.logfiles import LogFiles, store_root
from tidelog.tools.report.rows import between, timestamp


class Delivery:
    """One delivery.

    is_new        the group's position went over the entry: its event is `delivered`
    redelivered   it raised the delivery count
    added_at      None if the log does not have that; ended_at: None unless an acknowledgement ended it
    """

    __slots__ = (
        *("db", "stream", "group", "consumer", "id", "lsn", "delivery_count"),
        *("is_new", "redelivered", "added_at", "delivered_at", "ended_at"),
    )

    def __init__(
        self, db: int, stream: bytes, group: bytes, consumer: bytes, id: int, lsn: int, count: int
    ) -> None:
        self.db, self.stream, self.group, self.consumer = db, stream, group, consumer
        self.id, self.lsn, self.delivery_count = id, lsn, count
        self.is_new = self.redelivered = False
        self.added_at: int | None = None
        self.delivered_at: int | None = None
        self.ended_at: int | None = None

    @property
    def waited(self) -> int | None:
        """Milliseconds from adding to this delivery."""
        return between(self.added_at, self.delivered_at)

    @property
    def handled(self) -> int | None:
        """Milliseconds from this delivery to its acknowledgement."""
        return between(self.delivered_at, self.ended_at)


class _Message:
    """An entry in a group: its greatest delivery count, and the delivery that nothing ended yet."""

    __slots__ = ("most", "open")

    def __init__(self) -> None:
        self.most = 1
        self.open: Delivery | None = None


def log_of(store: Path) -> LogFiles:
    """The log of a store. Raises NotAStore, Damage, OSError."""
    return LogFiles(store_root(RealDisk(), store))


def stretches(files: LogFiles, advance: console.Advance) -> Iterator[tuple[Path, list[FrameTuple]]]:
    """The files of a log, each with consecutive frames of it. Raises Damage, OSError."""
    tail = Tail(files.disk, files.directory, files.uuid)
    while (stretch := tail.look()) is not None:
        yield stretch.path, stretch.frames
        tail.position = stretch.end
        advance(sum(len(frame[-1]) for frame in stretch.frames))


def deliveries(files: LogFiles) -> list[Delivery]:
    """The deliveries of a log, whose writer may be running.

    Raises CorruptFrame for a frame whose records do not decode, NewerRecord, Damage, OSError.
    """
    log = _Log()
    replay = Replay(log.take)
    with console.progress("log", files.size(), size=True) as advance:
        for path, frames in stretches(files, advance):
            for frame in frames:
                log.lsn, log.now = frame[1], frame[3]
                replay.run(path, (frame,))
    return log.found


class _Log:
    """Takes the records of one frame after the other. `now`: the time of the frame, unix ms."""

    def __init__(self) -> None:
        self.found: list[Delivery] = []
        self.lsn = self.now = 0
        self._added: dict[tuple[int, bytes, int], int] = {}
        self._messages: dict[tuple[int, bytes, bytes, int], _Message] = {}

    def take(self, records: list[Effect]) -> None:
        for record in records:
            opcode = record[0] & OPCODE
            if opcode in ADDS:
                self._add(record)
            elif opcode == e.DELIVER:
                self._deliver(*record[1:])
            elif opcode in (e.XACK, e.XACKDEL, e.XNACK):
                self._end(opcode, *record[1:5])
            self.lsn += 1

    def _add(self, record: Effect) -> None:
        _, db, key, ms, seq, *_ = record
        first = ms << 64 | seq
        for entry_id in range(first, first + entries_of(record)):
            self._added[db, key, entry_id] = self.now

    def _deliver(
        self,
        db: int,
        key: bytes,
        group: bytes,
        consumer: bytes,
        ids: bytes,
        at: int,
        counts: Any,
        _now: int,
        *position: int,
    ) -> None:
        found = idlist.unpack(ids)
        each = [counts] * len(found) if isinstance(counts, int) else list(counts)
        new = len(found)  # index of the first new delivery, as spark/source/log/events.py explains
        if position and found and found[-1] == position[0] << 64 | position[1]:
            while new and each[new - 1] == 1:
                new -= 1
        for place, (entry_id, count) in enumerate(zip(found, each)):
            message = self._messages.setdefault((db, key, group, entry_id), _Message())
            made = Delivery(db, key, group, consumer, entry_id, self.lsn, count)
            made.is_new, made.redelivered = place >= new, count > message.most
            made.added_at = self._added.get((db, key, entry_id))
            made.delivered_at = timestamp(at)
            message.most, message.open = max(message.most, count), made
            self.found.append(made)

    def _end(self, opcode: int, db: int, key: bytes, group: bytes, ids: bytes) -> None:
        for entry_id in idlist.unpack(ids):
            message = self._messages.get((db, key, group, entry_id))
            if message is not None and message.open is not None:
                if opcode != e.XNACK:
                    message.open.ended_at = self.now
                message.open = None
