"""Life: watches one entry while effects are applied, and notes what happens to it.

Most effects name the entry, but not all that end it: a trim names ordinals and a length, a flush names nothing. So the
watcher knows at which keys the streams are that hold the entry, and looks at their state before and after an effect. A
stream keeps its story through RENAME, MOVE and SWAPDB; a COPY has the story of its source up to the copy.

Streams that never held the entry cost one lookup per effect.

For a job of a queue, the queue's other streams and the strings of its results tell more. A delayed job gets another ID
when it is due: the watcher goes on with that one, and its life goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgpack

from tidelog.engine import idlist
from tidelog.engine.api import DbKey
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.as_commands import added
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.groups.group import Group
from tidelog.engine.idlist import is_narrow, key_of, pack_key
from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.engine.ids import text as id_text
from tidelog.engine.keys.state import State
from tidelog.engine.streams import reading
from tidelog.engine.streams.block import EntryRow
from tidelog.engine.streams.stream import Stream
from tidelog.figures.names import DUE, SCHEDULES, QueueStreams, is_job
from tidelog.jobs.codecs import NAMED
from tidelog.jobs.rows import DeadJob, fields_of
from tidelog.jobs.work.deaths import times
from tidelog.tools.aof.fields import ADDS, entries_of, names_id
from tidelog.tools.queue_streams import (
    delayed_origin,
    due_text,
    job_text,
    may_be_delayed,
    origin_of,
)
from tidelog.tools.text import argument, place_text, time_text

_WITHOUT_KEY: Final = frozenset((e.SWAPDB, e.FLUSHDB, e.FLUSHALL))
# effects that end or move the entry, or what is known of it in a group, and do not name it
_TAKES_AWAY: Final = _WITHOUT_KEY | {
    *(e.XTRIM, e.XGROUP_DESTROY, e.XGROUP_DELCONSUMER),
    *(e.DEL, e.SET, e.RENAME, e.COPY, e.MOVE, e.RESTORE),
}
_BRINGS: Final = frozenset((e.RESTORE, e.RESTORE | END))


class BeganAs(Exception):
    """The watched job had another ID before, with which its life begins."""

    def __init__(self, first: int) -> None:
        super().__init__(id_text(first).decode())
        self.first = first


RENEWED: Final = "renewed"  # the kind of the event of renewals that follow each other


class Event(NamedTuple):
    """Something that happened to the entry.

    kind    one word
    text    the event in words
    lsn     of the record
    now     time of its frame, unix ms
    """

    kind: str
    text: str
    lsn: int
    now: int


class Life:
    """The entry in one stream.

    places    every place where the stream was
    source    the life that it is a copy of, and the number of its events at that time
    """

    def __init__(self, place: DbKey, source: Life | None = None) -> None:
        self.places = [place]
        self.events: list[Event] = []
        self.source = None if source is None else (source, len(source.events))

    @property
    def place(self) -> DbKey:
        """Where the stream is, or was at the end."""
        return self.places[-1]

    def story(self) -> list[Event]:
        """The events, those of the source before the copy first."""
        if self.source is None:
            return self.events
        life, count = self.source
        return life.story()[: len(life.story()) - len(life.events) + count] + self.events


class Watch:
    """Watches the entry `entry_id` in every stream. `key` is that of the queue whose streams tell about it.

    `run` applies effects to the state. `lives` are all streams that held the entry, in the order of their beginning.
    `id` is another one from the time on when a delayed job is due; `first` is the one that was asked for.
    A frame without any of the `needles` names neither the entry nor the job; they are others when more is known.
    """

    def __init__(self, state: State, entry_id: int, key: bytes) -> None:
        self.state = state
        self.id = entry_id
        self.lives: list[Life] = []
        self.notes: list[Event] = []  # by the helper streams of the queue
        self._renewals = 0  # of the newest event, if it is one of renewals
        self.lsn = 0
        self.now = 0
        self._here: dict[DbKey, Life] = {}
        self.queue = QueueStreams(key)
        # of the queue: the key of the result, and whether it is there; the IDs under which
        # the job is dead; whether it was redriven
        self.first = id_text(entry_id)
        self._result = self.queue.result(self.first)
        self._has_result = False
        self._was_cancelled = False  # by an entry of its own
        self._dead: set[int] = set()
        self._redriven = False
        # of the unit under way: the records that put jobs, with their LSNs; the dead jobs that were deleted; and the
        # LSN at which the delayed job left `NAME:later`
        self._put_now: list[tuple[int, Effect]] = []
        self._dead_gone: list[int] = []
        self._left: int | None = None
        self.needles: tuple[bytes, ...] = ()
        self.follow(entry_id)
        # fmt: off
        self._on: dict[int, Callable[[Effect], None]] = {
            e.XADD_MANY:          self._batch,
            e.XTRIM:              self._removed,
            e.XDEL:               self._removed,
            e.XACKDEL:            self._acked_and_deleted,
            e.XIDMPRECORD:        self._idempotent,
            e.XGROUP_DESTROY:     self._group_gone,
            e.XGROUP_DELCONSUMER: self._consumer_gone,
            e.DELIVER:            self._delivered,
            e.XACK:               self._acked,
            e.XNACK:              self._released,
            e.DEL:                self._key_gone,
            e.SET:                self._overwritten,
            e.RESTORE:            self._restored,
            e.RENAME:             self._renamed,
            e.COPY:               self._copied,
            e.MOVE:               self._moved,
            e.SWAPDB:             self._swapped,
            e.FLUSHDB:            self._flushed,
            e.FLUSHALL:           self._flushed,
        }
        # fmt: on

    def follow(self, entry_id: int) -> None:
        """Go on with the ID that the delayed job has now."""
        self.id = entry_id
        self._text = id_text(entry_id)
        self._packed_ms: bytes = msgpack.packb(entry_id >> 64)
        self._look_for()

    def begin(
        self, name: str, lsn: int, now: int, *, alone: bool = False, before: bool = False
    ) -> None:
        """Note the streams of the state that already hold the entry, or have it pending, at the base `name`.

        alone    the log does not continue this base
        before   what the log has of the time before is told too
        """
        self.lsn, self.now = lsn, now
        if self._text == self.first and may_be_delayed(self.id) and self.id >> 64 <= now:
            self._find_due()
        more = "" if before else "; what happened before is not kept"
        if alone:
            more = "; the log behind it is gone"
        for number, database in enumerate(self.state.databases):
            for key, value, _ in database.keys.walk():
                if not isinstance(value, Stream):
                    continue
                inside = value.first_id() <= self.id <= value.last_id
                there = inside and value.contains(self.id)
                held = [group for group in value.groups.values() if group.pending.contains(self.id)]
                if there or held:
                    life = self._born((number, key))
                    at = "is there" if there else "is no longer in the stream, and still pending,"
                    row = value.get(self.id) if there and key in self.queue.jobs else None
                    if row is not None:
                        self._know(row)
                        at += f" as {self._text.decode()}" if self._text != self.first else ""
                    self._note(life, "present" if there else "absent", f"{at} in {name}{more}")
                    for group in held:
                        at = _holder(group, self.id)
                        if key == self.queue.later and group.name == DUE:
                            at = f"delayed until {due_text(_held(group, self.id)[0])}"
                        self._note(life, "pending", f"is {at}")
        self._look_for()

    def _find_due(self) -> None:
        """Go on with the job's present ID if the state has it after its delay was over."""
        for database in self.state.databases:
            for key in self.queue.jobs:
                stream = database.keys.get(key)
                if not isinstance(stream, Stream):
                    continue
                for entry_id, row in reading.between(stream, self.id, MAX):
                    if row is not None and origin_of(row) == self.first:
                        self.follow(entry_id)
                        return

    def _look_for(self) -> None:
        """Find the bytes that a frame has if one of its records names the entry, or tells about the job.

        An ID is in a record as its two numbers, in a list of IDs as a key, or as text.
        """
        found = [self._packed_ms, self._text]
        if self._here and is_narrow(self.id):
            found.append(pack_key(key_of(self.id)))
        if self._text != self.first:
            found.append(self.first)
        if not self._result.endswith(self.first):
            found.append(self._result)
        if self._dead:
            found.append(self.queue.dead)
        if found != list(self.needles):
            self.needles = tuple(found)

    def concerned(self, effects: list[Effect], named: bool) -> bool:
        """Whether one of the effects may be about the entry, as things stand before the first of them.

        named    the bytes of the effects have one of the `needles`
        """
        if not named:
            # Only effects that take entries away name none, and those that bring a whole stream.
            if not _BRINGS.isdisjoint([effect[0] for effect in effects]):
                return True
            return bool(self._here or self._has_result) and any(
                effect[0] & OPCODE in _TAKES_AWAY and self._takes(effect) for effect in effects
            )
        wanted, here, queue = self.id, self._here, self.queue
        helpers, notes, jobs = queue.all, queue.notes, queue.jobs
        ms, seq = wanted >> 64, wanted & SEQ_MAX
        for effect in effects:
            opcode = effect[0] & OPCODE
            if opcode <= e.XADD_IDMP:
                if opcode != e.EPOCH and (
                    (effect[3] == ms and effect[4] == seq) or effect[2] in helpers
                ):
                    return True
            elif opcode == e.XADD_MANY:
                # A fetch adds the failures and the dead jobs of its unit as batches, and the delayed jobs that are due.
                if names_id(effect, wanted, wanted) or effect[2] in notes:
                    return True
                if effect[2] in jobs and (effect[1], queue.later) in here:
                    return True
            elif opcode == e.XDEL and self._dead and effect[2] == queue.dead:
                return True
            elif opcode == e.SET and effect[2] == self._result:
                return True
            elif opcode in _TAKES_AWAY:
                if self._takes(effect):
                    return True
            elif here and (effect[1], effect[2]) in here:
                return True
        return False

    def _takes(self, effect: Effect) -> bool:
        """Whether an effect of _TAKES_AWAY may end or move the entry, or a stream or a group that has it."""
        opcode, here = effect[0] & OPCODE, self._here
        if opcode == e.DEL:
            keys = effect[2]
            gone = self._has_result and self._result in keys
            return gone or any((effect[1], key) in here for key in keys)
        if opcode in _WITHOUT_KEY:
            return bool(here)
        place = effect[1], effect[2]
        if opcode == e.RESTORE:
            return True  # nobody knows what its stream holds before it is there
        if opcode == e.XTRIM:
            return place in here and self._is_there(effect)
        if opcode == e.RENAME:
            return place in here or (effect[1], effect[3]) in here
        if opcode == e.COPY:
            return place in here or (effect[3], effect[4]) in here
        return place in here

    def run(self, effects: list[Effect], lsn: int, now: int, named: bool) -> None:
        """Apply the records of a frame that begins with `lsn`. `named` as of `concerned`."""
        state, on, wanted, queue = self.state, self._on, self.id, self.queue
        helpers, jobs = queue.all, queue.jobs
        self.now = now
        for at, effect in enumerate(effects, lsn):
            opcode = effect[0] & OPCODE
            if opcode <= e.XADD_IDMP:
                APPLY[effect[0]](state, effect)
                if named and opcode != e.EPOCH:
                    ours = effect[3] << 64 | effect[4] == wanted
                    if ours:
                        self.lsn = at
                        self._added(effect)
                    # A helper stream's own entry may have the ID of the job, if both were added in one millisecond.
                    if effect[2] in helpers and not (ours and effect[2] in jobs):
                        self.lsn = at
                        self._told(effect)
            else:
                watch = on.get(opcode) if named or opcode in _TAKES_AWAY else None
                if watch is None:
                    APPLY[effect[0]](state, effect)
                else:
                    self.lsn = at
                    watch(effect)
            if effect[0] & END and (self._put_now or self._dead_gone or self._left):
                self._unit_ended()
                wanted = self.id
        self._look_for()

    def told(self) -> int:
        """The number of events so far."""
        return sum(len(life.events) for life in self.lives) + len(self.notes)

    # --- one effect each; each of these applies it

    def _apply(self, effect: Effect) -> None:
        APPLY[effect[0]](self.state, effect)

    def _added(self, effect: Effect) -> None:
        life = self._born((effect[1], effect[2]))
        row = effect[5]
        self._know(row, effect)
        by = "XADD"
        if effect[0] & OPCODE == e.XADD_IDMP:
            by = f"XADD, idempotent for producer {argument(effect[7])}, ID {argument(effect[8])}"
        origin = origin_of(row)
        redriven = "" if origin is None else f", redriven from the dead job {origin.decode()}"
        what = "put" if is_job(row) else "added"
        self._note(life, "added", f"{what} by {by}{redriven}{job_text(row)}")

    def _batch(self, effect: Effect) -> None:
        self._apply(effect)
        key = effect[2]
        if names_id(effect, self.id, self.id):
            life = self._born((effect[1], key))
            text = f"added as entry {self._place_in(effect):,} of a batch of {entries_of(effect):,}"
            if key in self.queue.jobs or key == self.queue.later:
                row = self._row(effect)
                self._know(row, effect)
                text += job_text(row)
            self._note(life, "added", text)
        if key in self.queue.notes or key in self.queue.jobs:
            self._told(effect)

    def _place_in(self, effect: Effect) -> int:
        """Which entry of a batch is the watched one, from 1."""
        first: int = effect[3] << 64 | effect[4]
        return self.id - first + 1

    def _row(self, effect: Effect) -> EntryRow:
        """The row of the watched entry in a record that adds it."""
        return next(row for entry_id, row in added(effect) if entry_id == self.id)

    def _know(self, row: EntryRow, effect: Effect | None = None) -> None:
        """Take from the row of the job which ID `put` returned. Raises BeganAs if `effect` ends the job's delay."""
        origin = origin_of(row)
        if origin is None or self._text != self.first:
            return
        if effect is not None and effect[2] not in self.queue.jobs:
            return  # an entry of another stream may have the ID of the job
        self._result = self.queue.result(origin)
        delayed = delayed_origin(row)
        if effect is not None and delayed is not None:
            # The unit puts the job before it removes the delayed one. A redriven job has the same origin.
            later = self.state.databases[effect[1]].keys.get(self.queue.later)
            if isinstance(later, Stream) and later.contains(delayed):
                raise BeganAs(delayed)

    def told_by(self, effect: Effect, lsn: int, now: int) -> list[Event]:
        """The events that a record of one of the queue's streams tells, without any state."""
        self.lsn, self.now = lsn, now
        begun = len(self.notes)
        opcode = effect[0] & OPCODE
        if opcode in ADDS and effect[2] in self.queue.all:
            self._told(effect)
        elif opcode == e.XACKDEL and self._leaves(effect):
            self._left = lsn
        elif opcode == e.XACKDEL and effect[2] == self.queue.later:
            self._no_longer_delayed(effect)
        elif opcode == e.SET:
            self._result_stored(effect)
        if effect[0] & END:
            self._unit_ended()
        return self.notes[begun:]

    def _no_longer_delayed(self, effect: Effect) -> None:
        """Delayed jobs leave their stream. Raises BeganAs if their unit puts the watched job for one of them."""
        for _, put in self._put_now:
            if names_id(put, self.id, self.id):
                first = delayed_origin(self._row(put))
                if first is not None and names_id(effect, first, first):
                    raise BeganAs(first)

    def _result_stored(self, effect: Effect) -> None:
        if effect[2] == self._result:
            until = f", kept until {time_text(effect[4])}" if effect[4] >= 0 else ""
            self._has_result = True
            self._tell("result", f"result stored, {len(effect[3]):,} bytes{until}")

    def _leaves(self, effect: Effect) -> bool:
        """Whether a record takes the watched job out of the delayed ones."""
        later = effect[2] == self.queue.later and effect[3] == DUE
        return later and names_id(effect, self.id, self.id)

    def _told(self, effect: Effect) -> None:
        """A record of the queue that adds entries to one of its streams."""
        if effect[2] in self.queue.jobs:
            self._put_now.append((self.lsn, effect))
        elif effect[2] in self.queue.notes:
            for entry_id, row in added(effect):
                self._told_by_row(effect[2], entry_id, row)

    def _told_by_row(self, key: bytes, entry_id: int, row: EntryRow) -> None:
        fields = fields_of(row)
        new = id_text(entry_id).decode()
        dead = key in (self.queue.dead, self.queue.cancels)
        if fields.get(b"id" if dead else b"job") != self._text:
            return
        group = argument(fields.get(b"group", b""))
        if key == self.queue.failures:
            worker, error = (argument(fields.get(name, b"")) for name in (b"worker", b"error"))
            self._tell("failed", f"failed in group {group} at worker {worker}: {error}")
        elif not dead:
            until = fields.get(b"until", b"")
            shown = time_text(int(until)) if until.isdigit() else argument(until)
            self._tell("paused", f"paused in group {group} until {shown}")
        elif key == self.queue.cancels:
            self._was_cancelled = True
            self._tell("cancelled", f"cancelled in group {group}{_deliveries_told(row)}")
        else:
            reason = argument(fields.get(b"reason", b""))
            self._dead.add(entry_id)
            self._tell("dead", f"dead in group {group} as {new}: {reason}")

    def _unit_ended(self) -> None:
        """Tell of the end of a delay, of a redrive of the job, or of one that goes back to it."""
        put, gone = self._put_now, self._dead_gone
        if self._left is not None:
            self._delay_ended(self._left)
        elif put or gone:
            self._redrives()
        put.clear()
        gone.clear()
        self._left = None

    def _delay_ended(self, lsn: int) -> None:
        """The delayed job left its stream: its unit puts it, or it was cancelled."""
        for _, effect in self._put_now:
            for entry_id, row in added(effect):
                if origin_of(row) != self._text:
                    continue
                db = effect[1]
                life = self._here.pop((db, self.queue.later), None)
                self.lsn = lsn
                self._tell("due", f"due: became job {id_text(entry_id).decode()}")
                self.follow(entry_id)
                if life is not None:
                    self._here[db, effect[2]] = life
                    life.places.append((db, effect[2]))
                return
        self.lsn = lsn
        if not self._was_cancelled:  # as version 0.1 did it, or a put in its place
            self._tell("cancelled", "cancelled: it was no longer to be done")

    def _redrives(self) -> None:
        """The unit puts jobs and deletes dead ones.

        A redriven job names the very first one as its origin. So only the deleted dead jobs, which are in the order of
        the put ones, tell which of them this one was.
        """
        gone = self._dead_gone
        put = [
            (lsn, effect[3] << 64 | effect[4], effect[5])
            for lsn, effect in self._put_now
            if effect[0] & OPCODE != e.XADD_MANY
        ]
        own = next((at for at, dead in enumerate(gone) if dead in self._dead), None)
        if own is not None and len(put) != len(gone):
            self._tell("purged", "the dead job was deleted")
        for at, (lsn, new, row) in enumerate(put):
            ours = origin_of(row) == self.first and new != self.id
            if ours or (at == own and len(put) == len(gone)):
                again = "once more " if self._redriven else ""
                text = f"redriven {again}as {id_text(new).decode()}"
                self.notes.append(Event("redriven", text, lsn, self.now))
                self._redriven = True

    def _idempotent(self, effect: Effect) -> None:
        self._apply(effect)
        life = self._here.get((effect[1], effect[2]))
        if life is not None and names_id(effect, self.id, self.id):
            pid, iid = argument(effect[3]), argument(effect[4])
            self._note(life, "idempotent", f"recorded for producer {pid}, ID {iid}")

    def _removed(self, effect: Effect) -> None:
        """XTRIM and XDEL."""
        if self._dead and effect[0] & OPCODE == e.XDEL and effect[2] == self.queue.dead:
            self._dead_gone += idlist.unpack(effect[3])
        life = self._here.get((effect[1], effect[2]))
        before = life is not None and self._is_there(effect)
        self._apply(effect)
        if life is None or not before or self._is_there(effect):
            return
        if effect[0] & OPCODE == e.XDEL:
            self._note(life, "deleted", "deleted by XDEL")
        else:
            self._note(
                life, "trimmed", f"trimmed: {effect[4]:,} entries removed, {effect[3]:,} left"
            )

    def _acked_and_deleted(self, effect: Effect) -> None:
        if self._leaves(effect):
            self._left = self.lsn
            self._apply(effect)
            return
        life, group = self._at(effect)
        hit = life is not None and names_id(effect, self.id, self.id)
        held = hit and group is not None and group.pending.contains(self.id)
        there = hit and self._is_there(effect)
        self._apply(effect)
        if life is None:
            return
        done = (
            "acknowledged and deleted" if held and there else "deleted" if there else "acknowledged"
        )
        if held or there:
            self._note(life, "acked" if held else "deleted", f"{done} in {in_group(effect)}")

    def _delivered(self, effect: Effect) -> None:
        life, group = self._at(effect)
        if life is None or group is None or not names_id(effect, self.id, self.id):
            self._apply(effect)
            return
        before = group.pending.get(self.id)
        owner = None if before is None else group.owner_name(before[1])
        _, _, _, _, consumer, ids, _, counts, active, *position = effect
        at = idlist.unpack(ids).index(self.id)
        count = counts[at] if isinstance(counts, (tuple, list)) else counts
        self._apply(effect)
        time = effect[6]
        if group.name == DUE and effect[2] == self.queue.later:
            # A put moves the position of the group, a move does not.
            known = ("delayed", "delayed until") if position else ("rescheduled", "moved: due at")
            self._note(life, known[0], f"{known[1]} {due_text(time)}")
            return
        if group.name == DUE and effect[2] == SCHEDULES:
            self._note(life, "scheduled", f"next tick at {due_text(time)}, {count:,} made so far")
            return
        to = f"to {argument(consumer)} of {in_group(effect)}, delivery {count}"
        if before is None:
            self._note(life, "delivered", f"delivered {to}")
        elif owner == consumer and before[2] == count and active != -1:
            self._renewed(life, f"{argument(consumer)} of {in_group(effect)}")
        elif owner == consumer:
            again = "read again" if active == -1 else "delivered again"
            self._note(life, "delivered" if active == -1 else "claimed", f"{again} {to}")
        elif owner:
            self._note(life, "claimed", f"claimed from {argument(owner)} {to}")
        else:
            self._note(life, "delivered", f"delivered after its release {to}")

    def _renewed(self, life: Life, holder: str) -> None:
        """Note a claim by the holder itself. One after the other they are one event, at the place of the first."""
        begun = f"lease renewed by {holder}"
        last = life.events[-1] if life.events else None
        if last is None or last.kind != RENEWED or not last.text.startswith(begun):
            self._renewals = 1
            self._note(life, RENEWED, begun)
            return
        self._renewals += 1
        text = f"{begun}, {self._renewals:,} times, last at {time_text(self.now)}"
        life.events[-1] = last._replace(text=text)

    def _acked(self, effect: Effect) -> None:
        life, group = self._at(effect)
        held = None
        if life is not None and group is not None and names_id(effect, self.id, self.id):
            held = group.pending.get(self.id)
            owner = b"" if held is None else group.owner_name(held[1])
        self._apply(effect)
        if life is not None and held is not None:
            by = f", which {argument(owner)} had" if owner else ""
            self._note(life, "acked", f"acknowledged in {in_group(effect)}{by}")

    def _released(self, effect: Effect) -> None:
        life, _ = self._at(effect)
        self._apply(effect)
        if life is not None and names_id(effect, self.id, self.id):
            self._note(life, "nacked", f"released in {in_group(effect)}")

    def _group_gone(self, effect: Effect) -> None:
        life, group = self._at(effect)
        held = group is not None and group.pending.contains(self.id)
        self._apply(effect)
        if life is not None and held:
            self._note(life, "dropped", f"no longer pending: {in_group(effect)} was destroyed")

    def _consumer_gone(self, effect: Effect) -> None:
        life, group = self._at(effect)
        held = None if group is None else group.pending.get(self.id)
        lost = held is not None and group is not None and group.owner_name(held[1]) == effect[4]
        self._apply(effect)
        if life is not None and lost:
            who = f"consumer {argument(effect[4])} of {in_group(effect)}"
            self._note(life, "dropped", f"no longer pending: {who} was deleted")

    def _key_gone(self, effect: Effect) -> None:
        for key in effect[2]:
            if key == self._result and self._has_result:
                self._has_result = False
                self._tell("result", "the result is gone: it expired, or its key was deleted")
            self._end((effect[1], key), "the key was deleted, or it expired")
        self._apply(effect)

    def _overwritten(self, effect: Effect) -> None:
        self._result_stored(effect)
        self._end((effect[1], effect[2]), "the key was overwritten by SET")
        self._apply(effect)

    def _restored(self, effect: Effect) -> None:
        place = effect[1], effect[2]
        self._end(place, "the key was overwritten by RESTORE")
        self._apply(effect)
        if self._concerns(place):
            self._note(self._born(place), "restored", "brought by RESTORE of the stream")

    def _renamed(self, effect: Effect) -> None:
        _, db, source, target = effect
        if source != target:
            self._end((db, target), f"the key was overwritten by RENAME of {argument(source)}")
        self._apply(effect)
        if source != target:
            self._move((db, source), (db, target), f"renamed to {argument(target)}")

    def _moved(self, effect: Effect) -> None:
        self._apply(effect)
        _, db, key, target = effect
        self._move((db, key), (target, key), f"moved to database {target}")

    def _swapped(self, effect: Effect) -> None:
        self._apply(effect)
        _, a, b = effect
        other = {a: b, b: a}
        lives = [(place, life) for place, life in self._here.items() if place[0] in other]
        for place, _ in lives:
            del self._here[place]
        for (db, key), life in lives:
            self._put(life, (other[db], key), f"moved to database {other[db]} by SWAPDB")

    def _copied(self, effect: Effect) -> None:
        _, db, source, target_db, target = effect
        self._end((target_db, target), f"the key was overwritten by COPY of {argument(source)}")
        self._apply(effect)
        life = self._here.get((db, source))
        if life is not None and self._concerns((db, source)):
            copy = Life((target_db, target), life)
            self._here[target_db, target] = copy
            self.lives.append(copy)
            self._note(copy, "copied", f"copied with the stream {place_text(db, source)}")

    def _flushed(self, effect: Effect) -> None:
        one = effect[1] if effect[0] & OPCODE == e.FLUSHDB else None
        name = "FLUSHALL" if one is None else "FLUSHDB"
        for place in [place for place in self._here if one in (None, place[0])]:
            self._end(place, f"all keys were deleted by {name}")
        self._apply(effect)

    # --- lives

    def _at(self, effect: Effect) -> tuple[Life | None, Group | None]:
        """The life at an effect's key, and the effect's group there. Without a life nothing is looked up."""
        life = self._here.get((effect[1], effect[2]))
        if life is None:
            return None, None
        stream = self.state.databases[effect[1]].keys.get(effect[2])
        return life, stream.groups.get(effect[3]) if isinstance(stream, Stream) else None

    def _is_there(self, effect: Effect) -> bool:
        stream = self.state.databases[effect[1]].keys.get(effect[2])
        return isinstance(stream, Stream) and stream.contains(self.id)

    def _concerns(self, place: DbKey) -> bool:
        """Whether the stream at a place has the entry, or a group of it has the entry pending."""
        stream = self.state.databases[place[0]].keys.get(place[1])
        if not isinstance(stream, Stream):
            return False
        held = any(group.pending.contains(self.id) for group in stream.groups.values())
        return held or stream.contains(self.id)

    def _born(self, place: DbKey) -> Life:
        life = self._here.get(place)
        if life is None:
            life = self._here[place] = Life(place)
            self.lives.append(life)
        return life

    def _move(self, source: DbKey, target: DbKey, text: str) -> None:
        life = self._here.pop(source, None)
        if life is not None:
            self._put(life, target, text)

    def _put(self, life: Life, place: DbKey, text: str) -> None:
        self._here[place] = life
        life.places.append(place)
        if self._concerns(place):
            self._note(life, "moved", text)

    def _end(self, place: DbKey, text: str) -> None:
        """The stream at a place is about to go."""
        concerns = place in self._here and self._concerns(place)
        life = self._here.pop(place, None)
        if life is not None and concerns:
            self._note(life, "gone", text)

    def _note(self, life: Life, kind: str, text: str) -> None:
        life.events.append(Event(kind, text, self.lsn, self.now))

    def _tell(self, kind: str, text: str) -> None:
        self.notes.append(Event(kind, text, self.lsn, self.now))


def in_group(effect: Effect) -> str:
    return f"group {argument(effect[3])}"


def _holder(group: Group, entry_id: int) -> str:
    time, owner, count = _held(group, entry_id)
    who = f"with {argument(group.owner_name(owner))}" if owner else "with nobody"
    at = f" since {time_text(time)}" if owner else ""
    return f"pending in group {argument(group.name)}, {who}{at}, delivery {count}"


def _held(group: Group, entry_id: int) -> tuple[int, int, int]:
    """(time of delivery, owner, delivery count) of a pending entry."""
    held = group.pending.get(entry_id)
    assert held is not None
    return held


def _deliveries_told(row: EntryRow) -> str:
    """The deliveries of a cancelled job, by its entry."""
    job = DeadJob(0, row, NAMED["bytes"], "")
    if not job.deliveries:
        return " before a worker had it"
    last = f", the last one to worker {argument(job.workers[-1].encode())}" if job.workers else ""
    return f" after {times(job.deliveries)}{last}"
