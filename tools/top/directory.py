"""Looks at the directory of a store, beside its writer: a read-only store that catches up before each look.

The figures of a stream are kept until a record names its key. So the cost of a look is proportional to what was written
since the previous look, not to the number of streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tidelog.aof import durable
from tidelog.engine.api import DbKey
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import MAX, parse
from tidelog.engine.keys.state import DATABASES, State
from tidelog.engine.streams import reading
from tidelog.figures.model import GroupFigures, QueueFigures, StreamFigures
from tidelog.figures.queues import in_state
from tidelog.figures.streams import is_helper_in, of_group, of_stream, stream_at
from tidelog.store.clock import SYSTEM
from tidelog.store.lifetime import close
from tidelog.store.read_only import open_read_only
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.state import id_text
from tidelog.tools.top.look import EntryRow, Look, Rates
from tidelog.tools.why import as_text, in_order, refusal, story

T = TypeVar("T")
# effects that change keys which they do not name, or streams in another database
_ELSEWHERE: Final = frozenset((e.SWAPDB, e.FLUSHDB, e.FLUSHALL, e.RENAME, e.COPY, e.MOVE))


class Directory:
    """A Source: of all databases, or of the database `db`. Raises as `open_read_only` and `ReadOnlyCore.refresh`.

    helpers   also the streams that queues keep for themselves
    """

    def __init__(self, path: Path, db: int | None = None, helpers: bool = False) -> None:
        self._helpers = helpers
        self.title = str(path)
        self._databases = range(DATABASES) if db is None else (db,)
        self._files = LogFiles(path, snapshots=True)
        self._core = open_read_only(self._files.disk, self._files.root, SYSTEM)
        self._core.observe_records(self._written)
        self._rates = Rates()  # of groups
        # of the look before:
        self._state: State | None = None
        self._at_ms = 0
        self._rows: dict[DbKey, StreamFigures] = {}
        self._listed: list[StreamFigures] = []  # the same list as long as nothing changes
        self._moving: set[DbKey] = set()  # with a rate that is not 0
        # since then:
        self._changed: set[DbKey] = set()
        self._all = False  # more than the named keys may have changed

    def close(self) -> None:
        close(self._core)

    def look(self, shown: Sequence[DbKey]) -> Look:
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
                rows[place] = replace(rows[place], added_per_s=0.0)
        moving: set[DbKey] = set()
        for place in places:
            known = rows.pop(place, None)
            row = self._row(state, place)
            if row is None:
                continue
            rate = None if self._state is None else _rate(known, row, at_ms - before)
            rows[place] = replace(row, added_per_s=rate)
            if rate != 0:
                moving.add(place)
        if places or self._moving or state is not self._state:
            self._listed = list(rows.values())
        self._state, self._at_ms, self._moving = state, at_ms, moving
        self._changed, self._all = set(), False

    def _row(self, state: State, place: DbKey) -> StreamFigures | None:
        stream = stream_at(state, place)
        if stream is None or not self._helpers and is_helper_in(state, place, stream):
            return None
        return of_stream(place, stream)

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

    def _look(self, question: Callable[[State], list[T]]) -> list[T]:
        found: list[T] = self._core.look(question)[0]
        return found

    def groups(self, place: DbKey) -> list[GroupFigures]:
        at_ms = time.time_ns() // 1_000_000

        def at(state: State) -> list[GroupFigures]:
            stream = stream_at(state, place)
            if stream is None:
                return []
            groups = [stream.groups[name] for name in sorted(stream.groups)]
            return [of_group(place[1], stream, group, at_ms) for group in groups]

        return [
            replace(row, read_per_s=self._rates.of((*place, row.name), row.read, at_ms))
            for row in self._look(at)
        ]

    def queues(self) -> list[QueueFigures]:
        now = time.time_ns() // 1_000_000
        return self._look(lambda state: in_state(state, self._databases, now))

    def entries(self, place: DbKey, count: int) -> list[EntryRow]:
        def at(state: State) -> list[EntryRow]:
            stream = stream_at(state, place)
            if stream is None:
                return []
            found = reading.between(stream, 0, MAX, count, reverse=True)
            return [EntryRow(id_text(entry_id), row or ()) for entry_id, row in found]

        return self._look(at)

    def why(self, place: DbKey, entry_id: str) -> str:
        return life_text(self._files, place[1], entry_id)


def life_text(files: LogFiles, key: bytes, entry_id: str) -> str:
    """The life of an entry as lines. Raises as `story`."""
    found = story(files, key, parse(entry_id.encode(errors="surrogateescape")), quiet=True)
    if not found.lives and found.damage is not None:
        raise found.damage
    if not found.lives:
        return refusal(key.decode("utf-8", "backslashreplace"), entry_id, found)
    lines = []
    for _, events in in_order(found):
        before: int | None = None
        for event in events:
            passed = None if before is None else event.now - before
            lines.append(as_text(event, None, passed))
            before = event.now
    if found.damage is not None:
        lines.append(f"{found.damage}\n")
    return "".join(lines)


def _rate(before: StreamFigures | None, row: StreamFigures, ms: int) -> float | None:
    """Entries added each second. A stream that was not there before began with none."""
    added = 0 if before is None or before.added is None else before.added
    if row.added is None or row.added < added or ms <= 0:
        return None
    return (row.added - added) * 1000 / ms
