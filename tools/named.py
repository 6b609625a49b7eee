"""Named: what the records of the log say of an entry where no state is kept to replay them on.

The log may begin before the oldest state from which it can be replayed, since a part of it is retained behind a
checkpoint. A snapshot may be older than the log. The records that name the entry are told there, and the snapshots that
hold it. A trim names no entry, and a rename is not followed, so such a story may have gaps.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.ids import text as id_text
from tidelog.engine.keys.state import State
from tidelog.tools.aof.records import UNFIT, Record, records_of, unfit
from tidelog.tools.aof.wanted import Wanted, needles_of
from tidelog.tools.bases import Base, state_of
from tidelog.tools.life import Event, Watch, in_group
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.text import argument

_ADDS = frozenset((e.XADD, e.XADD_NODE, e.XADD_IDMP, e.XADD_MANY))


def named(files: LogFiles, key: bytes, wanted: int, first: int, last: int) -> Iterator[Event]:
    """The records from LSN `first` to `last` that name the entry at the key. Raises as `LogFiles.frames`."""
    watch = Watch(State(), wanted, key)
    span = Wanted(lsn_min=first, lsn_max=last, ids=(wanted, wanted), key=key.__eq__)
    # the ID as an integer or in a list, or as text in a record of the queue
    needles = (*needles_of((wanted, wanted)), id_text(wanted))
    for path, frame in files.frames():
        if span.ended(frame):
            break
        if frame.lsn + frame.count <= first or not any(needle in frame.body for needle in needles):
            continue
        try:
            yield from _named_in(records_of(path, frame), wanted, last, span, watch)
        except UNFIT as error:
            raise unfit(path, frame, error) from error


def _named_in(
    records: Iterator[Record], wanted: int, last: int, span: Wanted, watch: Watch
) -> Iterator[Event]:
    for record in records:
        if record.lsn > last:
            return
        event = _event(record.effect, wanted) if span.has(record.effect) else None
        if event is not None:
            yield Event(*event, record.lsn, record.now)
        elif record.effect[0] & OPCODE in _ADDS:
            yield from watch.told_by(record.effect, record.lsn, record.now)


def _event(effect: Effect, wanted: int) -> tuple[str, str] | None:
    """(kind, text) of an effect that names the entry; None for one that changes nothing about it."""
    opcode = effect[0] & OPCODE
    if opcode in _ADDS:
        return "added", "added by XADD" if opcode != e.XADD_MANY else "added in a batch"
    if opcode == e.DELIVER:
        count = effect[7]
        if isinstance(count, (tuple, list)):
            count = count[idlist.unpack(effect[5]).index(wanted)]
        return (
            "delivered",
            f"delivered to {argument(effect[4])} of {in_group(effect)}, delivery {count}",
        )
    if opcode == e.XACK:
        return "acked", f"acknowledged in {in_group(effect)}"
    if opcode == e.XNACK:
        return "nacked", f"released in {in_group(effect)}"
    if opcode == e.XACKDEL:
        return "acked", f"acknowledged or deleted in {in_group(effect)}"
    if opcode == e.XDEL:
        return "deleted", "deleted by XDEL"
    return None


def witnessed(files: LogFiles, older: list[Base], key: bytes, wanted: int) -> Iterator[Event]:
    """The entry in the states of bases that the log does not continue. Raises CorruptBlock, OSError."""
    for base in older:
        with state_of(files, base) as (state, start):
            watch = Watch(state, wanted, key)
            watch.begin(base.name, start.lsn, start.now, alone=True)
            for life in watch.lives:
                if life.place[1] == key:
                    yield from life.events
