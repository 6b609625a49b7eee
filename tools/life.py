"""Life: watches one entry while effects are applied, and notes what happens to it.

Most effects name the entry, but not all that end it: a trim names ordinals and a length, a flush names nothing. So the
watcher knows at which keys the streams are that hold the entry, and looks at their state before and after an effect. A
stream keeps its story through RENAME, MOVE and SWAPDB; a COPY has the story of its source up to the copy.

Streams that never held the entry cost one lookup per effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgpack

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import APPLY
from tidelog.engine.effects.as_commands import added
from tidelog.engine.effects.effect import END, OPCODE, Effect
from tidelog.engine.groups.group import Group
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.ids import text as id_text
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.tools.aof.fields import entries_of, names_id
from tidelog.tools.text import argument, time_text

Place = tuple[int, bytes]  # database, key

# effects that name one key and change nothing elsewhere
_AT_A_KEY: Final = frozenset(
    (
        *(
            e.XTRIM,
            e.XDEL,
            e.XSETID,
            e.XCFGSET,
            e.XIDMPRECORD,
            e.IDMP_DUPLICATE,
            e.STREAM_CREATE,
            e.XREOPEN,
        ),
        *range(e.XGROUP_CREATE, e.XACKDEL + 1),
        *(e.SET, e.PEXPIREAT, e.PERSIST, e.APPEND),
    )
)

_WITHOUT_KEY: Final = frozenset((e.SWAPDB, e.FLUSHDB, e.FLUSHALL))

HOLDS: Final = b":holds"
FAILURES: Final = b":failures"
DEAD: Final = b":dead"


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

    def __init__(self, place: Place, source: Life | None = None) -> None:
        self.places = [place]
        self.events: list[Event] = []
        self.source = None if source is None else (source, len(source.events))

    @property
    def place(self) -> Place:
        """Where the stream is, or was at the end."""
        return self.places[-1]

    def story(self) -> list[Event]:
        """The events, those of the source before the copy first."""
        if self.source is None:
            return self.events
        life, count = self.source
        return life.story()[: len(life.story()) - len(life.events) + count] + self.events


class Watch:
    """Watches the entry `entry_id` in every stream. `key` names the queue whose helper streams tell about it.

    `run` applies effects to the state. `lives` are all streams that held the entry, in the order of their beginning.
    """

    def __init__(self, state: State, entry_id: int, key: bytes) -> None:
        self.state = state
        self.id = entry_id
        self.lives: list[Life] = []
        self.notes: list[Event] = []  # by the helper streams of the queue
        self.lsn = 0
        self.now = 0
        self._text = id_text(entry_id)
        self._packed_ms: bytes = msgpack.packb(entry_id >> 64)
        self._here: dict[Place, Life] = {}
        self._notes = {key + HOLDS, key + FAILURES, key + DEAD}
        self._helpers = {key, *self._notes}
        self._key = key
        # of the queue: the IDs under which the job is dead; whether it was redriven; and of the unit under way the jobs
        # that were put (LSN, ID, whether they go back to this one), and the dead ones that were deleted
        self._dead: set[int] = set()
        self._redriven = False
        self._put_again: list[tuple[int, str, bool]] = []
        self._dead_gone: list[int] = []
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
            e.RENAME:             self._renamed,
            e.COPY:               self._copied,
            e.MOVE:               self._moved,
            e.SWAPDB:             self._swapped,
            e.FLUSHDB:            self._flushed,
            e.FLUSHALL:           self._flushed,
        }
        # fmt: on

    def begin(
        self, name: str, lsn: int, now: int, *, alone: bool = False, before: bool = False
    ) -> None:
        """Note the streams of the state that already hold the entry, or have it pending, at the base `name`.

        alone    the log does not continue this base
        before   what the log has of the time before is told too
        """
        self.lsn, self.now = lsn, now
        more = "" if before else "; what happened before is not kept"
        if alone:
            more = "; the log behind it is gone"
        for number, database in enumerate(self.state.databases):
            for key, value, _ in database.keys.walk():
                if not isinstance(value, Stream):
                    continue
                there = (
                    value.contains(self.id)
                    if value.first_id() <= self.id <= value.last_id
                    else False
                )
                held = [group for group in value.groups.values() if group.pending.contains(self.id)]
                if there or held:
                    life = self._born((number, key))
                    at = "is there" if there else "is no longer in the stream, and still pending,"
                    self._note(life, "present" if there else "absent", f"{at} in {name}{more}")
                    for group in held:
                        self._note(life, "pending", f"is {_holder(group, self.id)}")

    def may_concern(self, body: bytes) -> bool:
        """Whether the bytes of a frame may hold a record that names the entry, or a key at which it is."""
        if self._packed_ms in body or self._text in body:
            return True
        return bool(self._here) and any(key in body for _, key in self._here)

    def loses_keys(self, effects: list[Effect]) -> bool:
        """Whether an effect that names no key may take a stream away that holds the entry."""
        return bool(self._here) and any(effect[0] & OPCODE in _WITHOUT_KEY for effect in effects)

    def concerned(self, effects: list[Effect]) -> bool:
        """Whether one of the effects may be about the entry, as things stand before the first of them."""
        wanted, here, helpers, notes = self.id, self._here, self._helpers, self._notes
        ms, seq = wanted >> 64, wanted & SEQ_MAX
        for effect in effects:
            opcode = effect[0] & OPCODE
            if opcode <= e.XADD_IDMP:
                if opcode != e.EPOCH and (
                    (effect[3] == ms and effect[4] == seq) or effect[2] in helpers
                ):
                    return True
            elif opcode == e.XADD_MANY:
                # A fetch adds the failures and the dead jobs of its unit as batches.
                if names_id(effect, wanted, wanted) or effect[2] in notes:
                    return True
            elif opcode == e.XDEL and self._dead and effect[2] == self._key + DEAD:
                return True
            elif here and (opcode not in _AT_A_KEY or (effect[1], effect[2]) in here):
                return True
        return False

    def run(self, effects: list[Effect], lsn: int, now: int) -> None:
        """Apply the records of a frame that begins with `lsn`."""
        state, on, wanted, helpers = self.state, self._on, self.id, self._helpers
        self.now = now
        for at, effect in enumerate(effects, lsn):
            opcode = effect[0] & OPCODE
            if opcode <= e.XADD_IDMP:
                APPLY[effect[0]](state, effect)
                if opcode != e.EPOCH:
                    ours = effect[3] << 64 | effect[4] == wanted
                    if ours:
                        self.lsn = at
                        self._added(effect)
                    # A helper stream's own entry may have the ID of the job, if both were added in one millisecond.
                    if effect[2] in helpers and not (ours and effect[2] == self._key):
                        self.lsn = at
                        self._told(effect)
                if effect[0] & END:
                    self._unit_ended()
                continue
            watch = on.get(opcode)
            if watch is None:
                APPLY[effect[0]](state, effect)
            else:
                self.lsn = at
                watch(effect)
            if effect[0] & END and (self._put_again or self._dead_gone):
                self._unit_ended()

    def told(self) -> int:
        """The number of events so far."""
        return sum(len(life.events) for life in self.lives) + len(self.notes)

    # --- one effect each; each of these applies it

    def _apply(self, effect: Effect) -> None:
        APPLY[effect[0]](self.state, effect)

    def _added(self, effect: Effect) -> None:
        life = self._born((effect[1], effect[2]))
        what = "put" if _is_job(effect[5]) else "added"
        by = "XADD"
        if effect[0] & OPCODE == e.XADD_IDMP:
            by = f"XADD, idempotent for producer {argument(effect[7])}, ID {argument(effect[8])}"
        origin = dict(zip(effect[5][::2], effect[5][1::2], strict=False)).get(b"origin")
        redriven = (
            f", redriven from the dead job {origin.decode()}" if origin and what == "put" else ""
        )
        self._note(life, "added", f"{what} by {by}{redriven}")

    def _batch(self, effect: Effect) -> None:
        self._apply(effect)
        if effect[2] in self._notes:
            self._told(effect)
        if names_id(effect, self.id, self.id):
            count = entries_of(effect)
            place = self.id - (effect[3] << 64 | effect[4]) + 1
            self._note(
                self._born((effect[1], effect[2])),
                "added",
                f"added as entry {place:,} of a batch of {count:,}",
            )

    def told_by(self, effect: Effect, lsn: int, now: int) -> list[Event]:
        """The events that a record of one of the queue's streams tells, without any state."""
        self.lsn, self.now = lsn, now
        begun = len(self.notes)
        batch = effect[0] & OPCODE == e.XADD_MANY
        if effect[2] in (self._notes if batch else self._helpers):
            self._told(effect)
        if effect[0] & END:
            self._unit_ended()
        return self.notes[begun:]

    def _told(self, effect: Effect) -> None:
        """A record of the queue that adds entries to one of its streams."""
        for entry_id, row in added(effect):
            self._told_by_row(effect[2], entry_id, row)

    def _told_by_row(self, key: bytes, entry_id: int, row: tuple[bytes, ...]) -> None:
        fields = dict(zip(row[::2], row[1::2], strict=False))
        new = id_text(entry_id).decode()
        if key == self._key:
            self._put_again.append((self.lsn, new, fields.get(b"origin") == self._text))
            return
        if fields.get(b"id" if key.endswith(DEAD) else b"job") != self._text:
            return
        group = argument(fields.get(b"group", b""))
        if key.endswith(FAILURES):
            worker, error = (argument(fields.get(name, b"")) for name in (b"worker", b"error"))
            self._tell("failed", f"failed in group {group} at worker {worker}: {error}")
        elif key.endswith(HOLDS):
            until = fields.get(b"until", b"")
            shown = time_text(int(until)) if until.isdigit() else argument(until)
            self._tell("paused", f"paused in group {group} until {shown}")
        else:
            reason = argument(fields.get(b"reason", b""))
            self._dead.add(entry_id)
            self._tell("dead", f"dead in group {group} as {new}: {reason}")

    def _unit_ended(self) -> None:
        """Tell of a redrive of the job, or of one that goes back to it. Its unit puts jobs and deletes dead ones.

        A redriven job names the very first one as its origin. So only the deleted dead jobs, which are in the order of
        the put ones, tell which of them this one was.
        """
        put, gone = self._put_again, self._dead_gone
        own = next((at for at, dead in enumerate(gone) if dead in self._dead), None)
        if own is not None and len(put) != len(gone):
            self._tell("purged", "the dead job was deleted")
        for at, (lsn, new, ours) in enumerate(put):
            if ours or (at == own and len(put) == len(gone)):
                again = "once more " if self._redriven else ""
                self.notes.append(Event("redriven", f"redriven {again}as {new}", lsn, self.now))
                self._redriven = True
        put.clear()
        gone.clear()

    def _idempotent(self, effect: Effect) -> None:
        self._apply(effect)
        life = self._here.get((effect[1], effect[2]))
        if life is not None and names_id(effect, self.id, self.id):
            pid, iid = argument(effect[3]), argument(effect[4])
            self._note(life, "idempotent", f"recorded for producer {pid}, ID {iid}")

    def _removed(self, effect: Effect) -> None:
        """XTRIM and XDEL."""
        if self._dead and effect[0] & OPCODE == e.XDEL and effect[2] == self._key + DEAD:
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
        to = f"to {argument(consumer)} of {in_group(effect)}, delivery {count}"
        if before is None:
            self._note(life, "delivered", f"delivered {to}")
        elif owner == consumer:
            again = "read again" if active == -1 else "delivered again"
            self._note(life, "delivered" if active == -1 else "claimed", f"{again} {to}")
        elif owner:
            self._note(life, "claimed", f"claimed from {argument(owner)} {to}")
        else:
            self._note(life, "delivered", f"delivered after its release {to}")

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
            self._end((effect[1], key), "the key was deleted, or it expired")
        self._apply(effect)

    def _overwritten(self, effect: Effect) -> None:
        self._end((effect[1], effect[2]), "the key was overwritten by SET")
        self._apply(effect)

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
            self._note(copy, "copied", f"copied with the stream {_place((db, source))}")

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

    def _concerns(self, place: Place) -> bool:
        """Whether the stream at a place has the entry, or a group of it has the entry pending."""
        stream = self.state.databases[place[0]].keys.get(place[1])
        if not isinstance(stream, Stream):
            return False
        held = any(group.pending.contains(self.id) for group in stream.groups.values())
        return held or stream.contains(self.id)

    def _born(self, place: Place) -> Life:
        life = self._here.get(place)
        if life is None:
            life = self._here[place] = Life(place)
            self.lives.append(life)
        return life

    def _move(self, source: Place, target: Place, text: str) -> None:
        life = self._here.pop(source, None)
        if life is not None:
            self._put(life, target, text)

    def _put(self, life: Life, place: Place, text: str) -> None:
        self._here[place] = life
        life.places.append(place)
        if self._concerns(place):
            self._note(life, "moved", text)

    def _end(self, place: Place, text: str) -> None:
        """The stream at a place is about to go."""
        concerns = place in self._here and self._concerns(place)
        life = self._here.pop(place, None)
        if life is not None and concerns:
            self._note(life, "gone", text)

    def _note(self, life: Life, kind: str, text: str) -> None:
        life.events.append(Event(kind, text, self.lsn, self.now))

    def _tell(self, kind: str, text: str) -> None:
        self.notes.append(Event(kind, text, self.lsn, self.now))


def _is_job(row: tuple[bytes, ...]) -> bool:
    return bool(row) and row[0] == b"value"


def in_group(effect: Effect) -> str:
    return f"group {argument(effect[3])}"


def _holder(group: Group, entry_id: int) -> str:
    held = group.pending.get(entry_id)
    assert held is not None
    time, owner, count = held
    who = f"with {argument(group.owner_name(owner))}" if owner else "with nobody"
    at = f" since {time_text(time)}" if owner else ""
    return f"pending in group {argument(group.name)}, {who}{at}, delivery {count}"


def _place(place: Place) -> str:
    return (f"[{place[0]}] " if place[0] else "") + argument(place[1])
