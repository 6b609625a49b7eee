"""Lost: what a repair gives up, as far as the rest of the log tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.engine import idlist
from tidelog.engine.api import DbKey
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import keys
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.tools.aof import record_check
from tidelog.tools.aof.fields import ADDS, IDS_AT, entries_of
from tidelog.tools.aof.records import Record

_REPLACES = frozenset((e.DEL, e.SET, e.RENAME, e.COPY, e.MOVE, e.STREAM_CREATE, e.RESTORE))
_REPLACES_ALL = frozenset((e.SWAPDB, e.FLUSHDB, e.FLUSHALL))


class Missing(NamedTuple):
    """Entries of a stream that were added in the gap: `added` is its counter before, `then` the counter behind."""

    db: int
    key: bytes
    entries: int
    added: int
    then: int


class Lost(NamedTuple):
    """The records behind the last LSN that is kept, and the history that is lost.

    gaps       (first, last) LSN of records that cannot be read
    first, last, since, until   LSNs and times (unix ms) of the intact records; 0: there are none
    intact     number of intact records
    by_key     (key, kind of record) -> number of intact records
    missing    entries that were added in the gap, at least, as counters and lengths behind it prove
    history    (first, last) LSN of records that leave the log although the state has them; None: none do
    """

    gaps: list[tuple[int, int]]
    first: int
    last: int
    since: int
    until: int
    intact: int
    by_key: Counter[tuple[bytes, str]]
    missing: list[Missing]
    history: tuple[int, int] | None = None


def lost_behind(records: Iterable[Record], lsn: int, state: State) -> Lost:
    """Read the intact records behind `lsn`, at which `state` is."""
    gaps: list[tuple[int, int]] = []
    first = since = until = intact = 0
    by_key: Counter[tuple[bytes, str]] = Counter()
    counters = _Counters(state)
    last = lsn
    for record in records:
        if record.lsn > last + 1:
            gaps.append((last + 1, record.lsn - 1))
        last = record.lsn
        if not intact:
            first, since = record.lsn, record.now
        until = record.now
        intact += 1
        if record_check.fault(record.effect):
            by_key[b"", record.name] += 1
            continue
        for key in keys(record.effect) or (b"",):
            by_key[key, record.name] += 1
        counters.take(record.effect)
    return Lost(
        gaps, first, last if intact else 0, since, until, intact, by_key, counters.missing()
    )


class _Counters:
    """Compares how many entries were added behind the gap with what the records there say they found.

    A group that stands at an entry and knows how many it has read knows the stream's counter at that entry. A trim
    knows how many entries the stream had. Both may prove less than was added, if entries were deleted in the gap,
    but never more, so the greatest number counts. XSETID proves nothing, since a client may give it any counter.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        # ID of the last entry of an effect -> how many entries were added through it
        self._at: dict[DbKey, dict[int, int]] = {}
        self._added: Counter[DbKey] = Counter()
        self._removed: Counter[DbKey] = Counter()
        self._missing: dict[DbKey, Missing] = {}
        # Streams of another name or number than before the gap, and those whose counter was set: nothing is compared.
        self._replaced: set[DbKey] = set()
        self._set: set[DbKey] = set()
        self._all_replaced = False

    def take(self, effect: Effect) -> None:
        opcode = effect[0] & OPCODE
        place = (effect[1], effect[2]) if len(effect) > 2 else (0, b"")
        if opcode in ADDS:
            count = entries_of(effect)
            self._added[place] += count
            last = (effect[3] << 64 | effect[4]) + count - 1
            self._at.setdefault(place, {})[last] = self._added[place]
        elif opcode in (e.DELIVER, e.XGROUP_SETID) and len(effect) in (7, 12):
            ms, seq, read = effect[-3:]
            behind = self._at.get(place, {}).get(ms << 64 | seq)
            if behind is not None and read >= 0 and place not in self._set:
                self._proves(place, read - behind - self._stream(place, "entries_added"))
        elif opcode == e.XTRIM:
            found, known = effect[3] + effect[4], self._stream(place, "length")
            self._proves(place, found - (known + self._added[place] - self._removed[place]))
            self._removed[place] += effect[4]
        elif opcode in (e.XDEL, e.XACKDEL):
            self._removed[place] += idlist.count(effect[IDS_AT[opcode]])
        elif opcode == e.XSETID:
            self._set.add(place)
        elif opcode in _REPLACES:
            self._replaced |= {(effect[1], key) for key in keys(effect)}
            self._replaced |= {(effect[3], key) for key in keys(effect) if opcode == e.MOVE}
            self._replaced |= {(effect[3], effect[4])} if opcode == e.COPY else set()
        elif opcode in _REPLACES_ALL:
            self._all_replaced = True

    def _stream(self, place: DbKey, counter: str) -> int:
        """A counter of the stream before the gap."""
        stream = self._state.databases[place[0]].keys.get(place[1])
        return int(getattr(stream, counter)) if isinstance(stream, Stream) else 0

    def _proves(self, place: DbKey, count: int) -> None:
        before = self._missing.get(place)
        if count <= (before.entries if before else 0):
            return
        if not self._all_replaced and place not in self._replaced:
            added = self._stream(place, "entries_added")
            self._missing[place] = Missing(*place, count, added, added + count)

    def missing(self) -> list[Missing]:
        return list(self._missing.values())
