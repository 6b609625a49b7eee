"""Lost: what a repair gives up, as far as the rest of the log tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import keys
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.tools.aof import record_check
from tidelog.tools.aof.fields import entries_of
from tidelog.tools.aof.records import Record

_ADDS = frozenset((e.XADD, e.XADD_NODE, e.XADD_IDMP, e.XADD_MANY))


class Missing(NamedTuple):
    """Entries of a stream that were added in the gap: `added` is its counter before, `then` the counter behind."""

    db: int
    key: bytes
    entries: int
    added: int
    then: int


class Lost(NamedTuple):
    """The records behind the last LSN that is kept.

    gaps       (first, last) LSN of records that cannot be read
    first, last, since, until   LSNs and times (unix ms) of the intact records; 0: there are none
    intact     number of intact records
    by_key     (key, kind of record) -> number of intact records
    missing    entries that were added in the gap, as the counters of groups behind it prove
    """

    gaps: list[tuple[int, int]]
    first: int
    last: int
    since: int
    until: int
    intact: int
    by_key: Counter[tuple[bytes, str]]
    missing: list[Missing]


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
    """Compares how many entries were added behind the gap with what the groups there say they had read.

    A group that stands at an entry and knows how many it has read knows the stream's counter at that entry.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        # ID of the last entry of an effect -> how many entries were added through it
        self._at: dict[tuple[int, bytes], dict[int, int]] = {}
        self._count: Counter[tuple[int, bytes]] = Counter()
        self._missing: dict[tuple[int, bytes], Missing] = {}

    def take(self, effect: Effect) -> None:
        opcode = effect[0] & OPCODE
        if opcode in _ADDS:
            place = effect[1], effect[2]
            count = entries_of(effect) if opcode == e.XADD_MANY else 1
            self._count[place] += count
            last = (effect[3] << 64 | effect[4]) + count - 1
            self._at.setdefault(place, {})[last] = self._count[place]
        elif opcode in (e.DELIVER, e.XGROUP_SETID) and len(effect) in (7, 12):
            ms, seq, read = effect[-3:]
            place = effect[1], effect[2]
            behind = self._at.get(place, {}).get(ms << 64 | seq)
            if behind is not None and read >= 0 and place not in self._missing:
                self._compare(place, read, behind)

    def _compare(self, place: tuple[int, bytes], read: int, behind: int) -> None:
        stream = self._state.databases[place[0]].keys.get(place[1])
        added = stream.entries_added if isinstance(stream, Stream) else 0
        count = read - behind - added
        if count > 0:
            self._missing[place] = Missing(*place, count, added, added + count)

    def missing(self) -> list[Missing]:
        return list(self._missing.values())
