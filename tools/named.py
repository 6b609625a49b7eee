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
from tidelog.figures.names import DUE
from tidelog.tools.aof.fields import ADDS, names_id
from tidelog.tools.aof.records import UNFIT, Record, records_of, unfit
from tidelog.tools.aof.wanted import needles_of
from tidelog.tools.bases import Base, state_of
from tidelog.tools.life import Event, Watch, in_group
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.queue_streams import due_text
from tidelog.tools.text import argument


class Names:
    """The records of the log that name an entry at a key.

    id    the entry's ID; another one once a delayed job is due
    """

    def __init__(self, files: LogFiles, key: bytes, wanted: int) -> None:
        self.id = wanted
        self._files = files
        self._watch = Watch(State(), wanted, key)
        queue = self._watch.queue
        self._keys = {key, queue.later, *queue.jobs}

    def told(self, first: int, last: int) -> Iterator[Event]:
        """The events from LSN `first` to `last`. Raises BeganAs, and as `LogFiles.frames`."""
        needles = self._needles()
        for path, frame in self._files.frames():
            if frame.lsn > last:
                break
            if frame.lsn + frame.count <= first:
                continue
            if not any(needle in frame.body for needle in needles):
                continue
            try:
                for record in records_of(path, frame):
                    if record.lsn > last:
                        return
                    if record.lsn >= first:
                        yield from self._named_in(record)
            except UNFIT as error:
                raise unfit(path, frame, error) from error
            if self.id != self._watch.id:
                self.id = self._watch.id
                needles = self._needles()

    def _needles(self) -> tuple[bytes, ...]:
        """A frame has one of these if it names the entry: the ID as an integer or in a list, or as text in a row."""
        return (*needles_of((self.id, self.id)), id_text(self.id), self._watch.first)

    def _named_in(self, record: Record) -> Iterator[Event]:
        effect, watch = record.effect, self._watch
        yield from watch.told_by(effect, record.lsn, record.now)
        named = names_id(effect, watch.id, watch.id) and effect[2] in self._keys
        event = _event(effect, watch) if named else None
        if event is not None:
            yield Event(*event, record.lsn, record.now)


def _event(effect: Effect, watch: Watch) -> tuple[str, str] | None:
    """(kind, text) of an effect that names the entry; None for one that changes nothing about it."""
    opcode = effect[0] & OPCODE
    if opcode in ADDS:
        return "added", "added by XADD" if opcode != e.XADD_MANY else "added in a batch"
    if opcode == e.DELIVER:
        if effect[2] == watch.queue.later and effect[3] == DUE:
            return "delayed", f"delayed until {due_text(effect[6])}"
        count = effect[7]
        if isinstance(count, (tuple, list)):
            count = count[idlist.unpack(effect[5]).index(watch.id)]
        holder = f"{argument(effect[4])} of {in_group(effect)}"
        return "delivered", f"delivered to {holder}, delivery {count}"
    if opcode == e.XACK:
        return "acked", f"acknowledged in {in_group(effect)}"
    if opcode == e.XNACK:
        return "nacked", f"released in {in_group(effect)}"
    if opcode == e.XACKDEL and effect[2] != watch.queue.later:
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
