"""Looks at the directory of a store, beside its writer: a read-only store that catches up before each look.

The figures of a stream are kept until a record names its key. So the cost of a look is proportional to what was written
since the previous look, not to the number of streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.aof import durable
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.ids import MAX, parse
from tidelog.engine.keys.keyspace import Keyspace, resident
from tidelog.engine.keys.state import DATABASES, State
from tidelog.engine.streams import reading
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stream import Stream
from tidelog.store.clock import SYSTEM
from tidelog.store.lifetime import close
from tidelog.store.read_only import open_read_only
from tidelog.tools.jobs import queue_facts
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.queue_streams import due_ms, has_due_times
from tidelog.tools.state import id_text
from tidelog.tools.top.look import (
    ConsumerRow,
    EntryRow,
    GroupRow,
    Look,
    Place,
    QueueRow,
    Rates,
    StreamRow,
)
from tidelog.tools.why import as_text, refusal, story

# effects that change keys which they do not name, or streams in another database
_ELSEWHERE: Final = frozenset((e.SWAPDB, e.FLUSHDB, e.FLUSHALL, e.RENAME, e.COPY, e.MOVE))


class Directory:
    """A Source: of all databases, or of the database `db`. Raises as `open_read_only` and `ReadOnlyCore.refresh`."""

    def __init__(self, path: Path, db: int | None = None) -> None:
        self.title = str(path)
        self._databases = range(DATABASES) if db is None else (db,)
        self._files = LogFiles(path, snapshots=True)
        self._core = open_read_only(self._files.disk, self._files.root, SYSTEM)
        self._core.observe_records(self._written)
        self._rates = Rates()  # of groups
        # of the look before:
        self._state: State | None = None
        self._at_ms = 0
        self._rows: dict[Place, StreamRow] = {}
        self._listed: list[StreamRow] = []  # the same list as long as nothing changes
        self._moving: set[Place] = set()  # with a rate that is not 0
        # since then:
        self._changed: set[Place] = set()
        self._all = False  # more than the named keys may have changed

    def close(self) -> None:
        close(self._core)

    def look(self, shown: Sequence[Place]) -> Look:
        if self._files.snapshot is None:
            self._core.refresh()
        at_ms = time.time_ns() // 1_000_000
        self._core.look(lambda state: self._update(state, at_ms))
        return Look(at_ms, self._facts(), self._listed)

    def _written(self, records: list[Effect]) -> None:
        add = self._changed.add
        for record in records:
            opcode = record[0] & OPCODE
            if opcode in _ELSEWHERE:
                self._all = True
            elif opcode == e.DEL:
                self._changed.update((record[1], key) for key in record[2])
            elif opcode != e.EPOCH:
                add((record[1], record[2]))

    def _update(self, state: State, at_ms: int) -> None:
        """Look at the streams that changed, or at all streams if the state was read anew."""
        before, rows = self._at_ms, self._rows
        if state is not self._state or self._all:
            places = {(db, key) for db in self._databases for key in state.databases[db].keys}
            for gone in rows.keys() - places:
                del rows[gone]
        else:
            places = {place for place in self._changed if place[0] in self._databases}
        for place in self._moving - places:
            if place in rows:
                rows[place] = rows[place]._replace(added_per_s=0.0)
        moving: set[Place] = set()
        for place in places:
            known = rows.pop(place, None)
            row = self._row(state.databases[place[0]].keys, place)
            if row is None:
                continue
            rate = None if self._state is None else _rate(known, row, at_ms - before)
            rows[place] = row._replace(added_per_s=rate)
            if rate != 0:
                moving.add(place)
        if places or self._moving or state is not self._state:
            self._listed = list(rows.values())
        self._state, self._at_ms, self._moving = state, at_ms, moving
        self._changed, self._all = set(), False

    def _row(self, keys: Keyspace, place: Place) -> StreamRow | None:
        value = resident(keys, place[1])
        if value is None:
            if place[1] not in keys or keys.is_string(place[1]):
                return None
            value, _ = keys.look(place[1])
        return self._of_stream(place, value) if isinstance(value, Stream) else None

    def _of_stream(self, place: Place, stream: Stream) -> StreamRow:
        behind: int | None = 0
        pending = 0
        oldest: int | None = None
        due: int | None = None
        for name, group in stream.groups.items():
            its = lag(stream, group)
            behind = None if behind is None or its is None else behind + its
            count = len(group.pending)
            if count:
                pending += count
                if has_due_times(place[1], name):
                    due = _first_due(group)
                    continue
                first = group.pending.oldest()
                if first is not None and (oldest is None or first < oldest):
                    oldest = first
        added = stream.entries_added
        return StreamRow(
            *place, stream.length, added, None, len(stream.groups), behind, pending, oldest, due
        )

    def _facts(self) -> dict[str, Any]:
        """The facts in the files. The writer's fsync latency and exposed bytes are in its memory only."""
        opened = self._core.beneath.opened
        last = self._core.log.next_lsn - 1
        facts: dict[str, Any] = {
            "last_lsn": last,
            "checkpoint_lsn": 0 if opened is None else opened.meta.position.lsn,
            "log_bytes": self._files.size(),
            "durable_lsn": None,
            "exposed_bytes": None,
            "exposed_s": None,
            "delayed_fsyncs": None,
            "clients": None,
        }
        if self._files.snapshot is None:
            promises = durable.read(self._files.disk, self._files.directory, self._files.uuid)
            facts["durable_lsn"] = max((promise.lsn for promise in promises), default=0)
        return facts

    def groups(self, place: Place) -> list[GroupRow]:
        at_ms = time.time_ns() // 1_000_000

        def at(state: State) -> list[GroupRow]:
            stream = _stream(state, place)
            if stream is None:
                return []
            return [
                self._of_group(place, stream, stream.groups[name], at_ms)
                for name in sorted(stream.groups)
            ]

        rows: list[GroupRow] = self._core.look(at)[0]
        return rows

    def _of_group(self, place: Place, stream: Stream, group: Group, at_ms: int) -> GroupRow:
        read = None if group.entries_read == UNKNOWN else group.entries_read
        due = has_due_times(place[1], group.name)
        return GroupRow(
            group.name,
            id_text(group.last_id),
            read,
            self._rates.of((*place, group.name), read, at_ms),
            lag(stream, group),
            len(group.pending),
            None if due else group.pending.oldest(),
            [
                ConsumerRow(
                    one.name, group.pending.held_by(one.index), max(0, at_ms - one.seen_time)
                )
                for one in group.listed()
            ],
            _first_due(group) if due else None,
        )

    def queues(self) -> list[QueueRow]:
        now = time.time_ns() // 1_000_000

        def at(state: State) -> list[QueueRow]:
            return [
                row
                for db in self._databases
                for key, value, _ in state.databases[db].keys.walk()
                if isinstance(value, Stream)
                for row in _queues(state, db, key, value, now)
            ]

        rows: list[QueueRow] = self._core.look(at)[0]
        return rows

    def entries(self, place: Place, count: int) -> list[EntryRow]:
        def at(state: State) -> list[EntryRow]:
            stream = _stream(state, place)
            if stream is None:
                return []
            found = reading.between(stream, 0, MAX, count, reverse=True)
            return [EntryRow(id_text(entry_id), row or ()) for entry_id, row in found]

        rows: list[EntryRow] = self._core.look(at)[0]
        return rows

    def why(self, place: Place, entry_id: str) -> str:
        return life_text(self._files, place[1], entry_id)


def life_text(files: LogFiles, key: bytes, entry_id: str) -> str:
    """The life of an entry as lines. Raises as `story`."""
    found = story(files, key, parse(entry_id.encode(errors="surrogateescape")), quiet=True)
    if not found.lives and found.damage is not None:
        raise found.damage
    if not found.lives:
        return refusal(key.decode("utf-8", "backslashreplace"), entry_id, found)
    lines = []
    for number, life in enumerate(found.lives):
        notes = [] if number else found.notes
        before: int | None = None
        for event in sorted([*life.story(), *notes], key=lambda event: event.lsn):
            passed = None if before is None else event.now - before
            lines.append(as_text(event, None, passed))
            before = event.now
    if found.damage is not None:
        lines.append(f"{found.damage}\n")
    return "".join(lines)


def _first_due(group: Group) -> int | None:
    """When the first job of a group of delayed jobs is due; the next tick of the schedules."""
    # Not `oldest`: of a chunk that is cold it tells the last time.
    first = next(group.pending.by_age(0), None)
    return None if first is None else due_ms(first[0])


def _rate(before: StreamRow | None, row: StreamRow, ms: int) -> float | None:
    """Entries added each second. A stream that was not there before began with none."""
    added = 0 if before is None or before.added is None else before.added
    if row.added is None or row.added < added or ms <= 0:
        return None
    return (row.added - added) * 1000 / ms


def _stream(state: State, place: Place) -> Stream | None:
    keys = state.databases[place[0]].keys
    value = keys.look(place[1])[0] if place[1] in keys else None
    return value if isinstance(value, Stream) else None


def _queues(state: State, db: int, key: bytes, stream: Stream, now: int) -> list[QueueRow]:
    facts = queue_facts(state, db, key, stream, now)
    if facts is None:
        return []
    return [
        QueueRow(
            db,
            key,
            name,
            row["depth"],
            row["waiting"],
            row["in_flight"],
            row["paused"],
            facts["dead"],
            row["oldest_ms"],
        )
        for name, row in zip(sorted(stream.groups), facts["groups"], strict=True)
    ]
