"""Working: figures of the queues of an open store, for a scrape: counters that the store keeps, and the workers alive.

A scrape may come every second, so each queue costs one short hold of the lock, and the work is bounded: paused jobs are
counted by what the workers of this process know (jobs/work/known.py), never by reading the records of pauses. Cold
streams stay cold: of them a row is read.

The queues are those that this process has worked with, those whose jobs or helper streams are in memory, and, of a
database of at most KEYS_MAX keys, once those in the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.engine.api import DbKey, Stream, lag, reading, resident
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX
from tidelog.figures.model import QueueFigures
from tidelog.figures.names import (
    CANCELS,
    DEAD,
    DUE,
    FAILURES,
    HOLDS,
    LATER,
    due_ms,
    has_due_times,
    jobs_of,
    owner_of,
)
from tidelog.figures.resident import KEYS_MAX, NAMES, label, names_in_memory
from tidelog.figures.streams import is_helper_in, stream_at
from tidelog.jobs.living import living_workers
from tidelog.jobs.names import has_jobs
from tidelog.jobs.work.known import Known
from tidelog.jobs.work.leases import leases_of

if TYPE_CHECKING:
    from tidelog.store.commit.core import Core

CHECKED: Final = 5  # times as many keys are looked at as queues are shown
LOOKS: Final = 20  # first entries read per slice of the lock
PAUSE_S: Final = 0.0005  # pause after each queue, so that other threads get the lock and the GIL
LaneStreams = list[tuple[int, Stream]]  # of each priority that has one


class Working:
    """Finds the queues of an open store again and again. One thread calls it at a time."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: set[DbKey] = set()  # queues, by database and key
        self._read: set[int] = set()  # databases whose cold keys were looked through
        self._others: dict[DbKey, int] = {}  # no job is their first entry; with their numbers

    def figures(self, count: int, sees: Callable[[bytes], bool]) -> list[QueueFigures]:
        """The first `count` queues by name, of those that the reader sees, with each of their groups.

        Those that this process has worked with come first.
        """
        core = self._core
        # A copy of the references: other threads open queues meanwhile.
        alive = (reference() for reference in leases_of(core).known.valuerefs())
        known = {(each.db, each.key, each.group_key): each for each in alive if each is not None}
        worked = {place[:2] for place in known}
        self._known |= worked
        for db in range(len(core.state.databases)):
            plain = []
            for key in self._names(db):
                owner = owner_of(key)
                if owner is None:
                    plain.append((db, key))
                elif owner:
                    self._known.add((db, owner))
            self._look([place for place in plain if place not in self._known and sees(place[1])])
        seen = [place for place in self._known if sees(place[1]) and _is_text(place[1])]
        # A store may have many streams with the names of helpers that are none.
        places = sorted(seen, key=lambda place: (place not in worked, place))[: CHECKED * count]
        found: list[QueueFigures] = []
        shown = 0
        for place in places:
            if shown >= count:
                break
            with core.lock:
                try:
                    groups = self._of(place, known, place in worked)
                except CorruptBlock:
                    continue  # verify tells of it
            if not groups:
                self._known.discard(place)
            shown += bool(groups)
            found += groups
            time.sleep(PAUSE_S)
        return found

    def _names(self, db: int) -> list[bytes]:
        keys = self._core.state.databases[db].keys
        if db not in self._read and not keys.complete and len(keys) <= KEYS_MAX:
            with self._core.lock:
                self._read.add(db)
                try:
                    return list(keys)
                except CorruptBlock:
                    pass  # verify tells of it
        return names_in_memory(self._core, db)

    def _look(self, places: list[DbKey]) -> None:
        """Find the queues among streams that this process has not worked with, by their first entry."""
        unknown: list[DbKey] = []
        for at in range(0, len(places), NAMES):
            with self._core.lock:
                unknown += [each for each in places[at : at + NAMES] if self._is_unknown(each)]
            time.sleep(PAUSE_S)
        for at in range(0, len(unknown), LOOKS):
            with self._core.lock:
                for place in unknown[at : at + LOOKS]:
                    try:
                        stream = stream_at(self._core.state, place)
                        if stream is None:
                            continue
                        if has_jobs(stream):
                            self._known.add(place)
                        elif stream.length:
                            self._others[place] = stream.number
                    except CorruptBlock:
                        continue  # verify tells of it
            time.sleep(PAUSE_S)

    def _is_unknown(self, place: DbKey) -> bool:
        """[lock] Whether a key may hold a queue, as far as memory tells. Most keys were looked at before."""
        db, key = place
        value = resident(self._core.state.databases[db].keys, key)
        return (
            value is None or isinstance(value, Stream) and self._others.get(place) != value.number
        )

    def _of(
        self, place: DbKey, known: dict[tuple[int, bytes, bytes], Known], worked: bool
    ) -> list[QueueFigures]:
        """[lock] A queue, for each of its groups. `worked`: this process has worked with it."""
        db, key = place
        state, now = self._core.state, self._core.clocks().store
        lanes = [
            (priority, stream)
            for priority, each in enumerate(jobs_of(key))
            if (stream := stream_at(state, (db, each))) is not None
        ]
        dead, failures, later, cancels, *holds = (
            stream_at(state, (db, each))
            for each in (
                key + DEAD,
                key + FAILURES,
                key + LATER,
                key + CANCELS,
                *(k + HOLDS for k in jobs_of(key)),
            )
        )
        waiting = None if later is None else later.groups.get(DUE)
        if not worked and waiting is None and not self._is_queue(place, lanes, dead, failures):
            return []
        arrived = 0 if waiting is None else waiting.pending.until(now - due_ms(0))
        base = QueueFigures(
            *(db, key, None, arrived, arrived, 0, 0, _length(dead), None, _length(failures)),
            scheduled=None if waiting is None else len(waiting.pending) - arrived,
            put=sum(stream.entries_added for _, stream in lanes),
            died=_added(dead),
            failed=_added(failures),
            cancelled=_added(cancels),
            retried=sum(map(_added, holds)),
        )
        named = {
            name
            for _, stream in lanes
            for name in stream.groups
            if _is_text(name) and not has_due_times(key, name)
        }
        groups = [
            self._group(base, lanes, name, known.get((db, key, name))) for name in sorted(named)
        ]
        if len(groups) == 1:
            (one,) = groups
            return [replace(one, done=max(one.left - one.died, 0))]
        if groups:
            return groups
        unread = sum(stream.length for _, stream in lanes)
        first = [id for _, stream in lanes for id in reading.between(stream, 0, MAX, 1).ids()]
        return [
            replace(
                base,
                depth=base.depth + unread,
                waiting=base.waiting + unread,
                oldest_ms=min(first) >> 64 if first else None,
            )
        ]

    def _is_queue(
        self, place: DbKey, lanes: LaneStreams, dead: Stream | None, failures: Stream | None
    ) -> bool:
        """[lock] Whether jobs or helper streams show that there is a queue; a user's stream may have such a name."""
        if lanes and lanes[0][0] == 0 and has_jobs(lanes[0][1]):
            return True
        db, key = place
        helpers = [(key + DEAD, dead), (key + FAILURES, failures)]
        helpers += [(jobs_of(key)[priority], stream) for priority, stream in lanes if priority]
        state = self._core.state
        return any(
            stream is not None and is_helper_in(state, (db, each), stream)
            for each, stream in helpers
        )

    def _group(
        self,
        base: QueueFigures,
        lanes: LaneStreams,
        name: bytes,
        known: Known | None,
    ) -> QueueFigures:
        """[lock] One group of a queue."""
        unread = pending = nobody = paused = 0
        oldest: list[int] = []
        mono = self._core.monotonic()
        for priority, stream in lanes:
            group = stream.groups.get(name)
            if group is None or group.lost:
                continue
            fresh = lag(stream, group)
            # Unknown if an undelivered job was deleted by another client: then the finished ones that are kept count.
            fresh = max(stream.length - len(group.pending), 0) if fresh is None else fresh
            if fresh:
                oldest += reading.between(stream, group.last_id + 1, MAX, 1).ids()
            if len(group.pending):
                oldest.append(group.pending.first())
            unread, pending = unread + fresh, pending + len(group.pending)
            nacked = group.pending.nacked()
            nobody += nacked
            lane = known if not priority or known is None else known.lanes.get(priority)
            if nacked and lane is not None and (lane.number, lane.group) == (stream.number, group):
                paused += nacked - len(lane.due(group, mono))
        depth = unread + pending + base.depth
        return replace(
            base,
            group=name,
            depth=depth,
            waiting=unread + nobody - paused + base.waiting,
            in_flight=pending - nobody,
            paused=paused,
            oldest_ms=min(oldest) >> 64 if oldest else None,
            left=max(base.put - unread - pending, 0),
            workers=0 if known is None else len(living_workers(known)),
            **leases_of(self._core).hangs.sum((base.db, base.key, name), mono)._asdict(),
        )


def _is_text(raw: bytes) -> bool:
    """Whether a name is one that a queue may have; others would share labels."""
    return label(raw).encode() == raw


def _length(stream: Stream | None) -> int:
    return 0 if stream is None else stream.length


def _added(stream: Stream | None) -> int:
    return 0 if stream is None else stream.entries_added
