"""Origins: which ID an unfinished job has now, if it is not the first one. All methods: under the store's lock.

A delayed job gets a new ID when it is due, and a dead job when it is redriven. Its entry then has the field `origin`,
the ID that `put` returned, and a caller who asks for its result knows that one only.

    put: 5-2097152      due: the entry 9-0 with the origin 5-2097152      done: no entry
                        noted: 5-2097152 -> 9-0                           not noted any more

Nothing is noted before a caller asks for such a job. Then the entries that some group still needs are read once, page
by page, and from then on those that came since. Sealed nodes without the word `origin` are not decoded. A note takes
about 100 bytes (decisions/results.md), and goes with its job.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import Context, State, Stream, reading
from tidelog.jobs.lanes import HIGHEST_FIRST, lane_key, lane_of
from tidelog.jobs.rows import ORIGIN, origin_of
from tidelog.jobs.streams import is_needed, needed_from
from tidelog.store.commit.core import Core

# Jobs with an origin, or KiB of nodes, on one page. Others get the lock between two pages.
PAGE: Final = 4_000

LaneStreams = list[tuple[int, Stream]]


class Origins:
    """The notes about one queue of one open store.

    _of        the state that was read; another one has replaced it if memory was rebuilt
    _now       first ID -> present one
    _read      priority -> (number of the lane's stream, ID up to which it was read)
    _ended     first IDs of jobs that end in the unit that begins at the LSN `_unit`. Their entries' fate is
               known after it: another group may need them, and the unit may fail
    """

    __slots__ = ("_place", "_of", "_now", "_read", "_ended", "_unit")

    def __init__(self, db: int, key: bytes) -> None:
        self._place = db, key
        self._of: Callable[[], State | None] = lambda: None
        self._forget()

    def __len__(self) -> int:
        return len(self._now)

    def _forget(self) -> None:
        self._now: dict[int, int] = {}
        self._read: dict[int, tuple[int, int]] = {}
        self._ended: list[int] = []
        self._unit = 0

    def find(self, state: State, first: int) -> tuple[Stream, int] | None:
        """The lane and the present ID of a job that some group needs; None if it is not noted."""
        now = self._now.get(first)
        if now is None:
            return None
        db, key = self._place
        for priority in {lane_of(now), 0}:
            stream = state.databases[db].keys.get(lane_key(key, priority))
            if isinstance(stream, Stream) and stream.contains(now) and is_needed(stream, now):
                return stream, now
        return None

    def ended(self, core: Core, first: bytes) -> None:
        """A job ends in the unit under way."""
        if self._now:
            self._drop_ended(core)
            number = ids.parse_or_none(first)
            if number in self._now:
                self._ended.append(number)

    def read_on(self, core: Core, ctx: Context) -> bool:
        """Read one page of the entries that were not read yet. Returns whether these are all."""
        self._drop_ended(core)
        lanes = self._lanes(ctx.state)
        if self._of() is not ctx.state or self._is_out_of_date(lanes):
            self._forget()
            self._of = weakref.ref(ctx.state)
        # With a clock that only a test moves, nothing would wake the caller for the next page.
        left: float = float("inf") if core.clock.manual else PAGE
        for priority, stream in lanes:
            left -= self._read_lane(priority, stream, left)
            if left <= 0:
                return False
        return True

    def _lanes(self, state: State) -> LaneStreams:
        db, key = self._place
        found = []
        for priority in (*HIGHEST_FIRST, 0):
            value = state.databases[db].keys.get(lane_key(key, priority))
            if isinstance(value, Stream):
                found.append((priority, value))
        return found

    def _is_out_of_date(self, lanes: LaneStreams) -> bool:
        """Whether another client has replaced a stream, or deleted entries until there are fewer of them than notes."""
        numbers = {priority: stream.number for priority, stream in lanes}
        return len(self._now) > sum(stream.length for _, stream in lanes) or any(
            numbers.get(priority) != number for priority, (number, _) in self._read.items()
        )

    def _read_lane(self, priority: int, stream: Stream, most: float) -> int:
        """Read entries of a lane until the page has `most`. Returns how much of the page they take."""
        _, read = self._read.get(priority, (0, 0))
        size = 0
        if read < stream.last_id:
            delivered = max((group.last_id for group in stream.groups.values()), default=0)
            for last, nbytes, entries in reading.having(
                stream, ORIGIN, max(read + 1, needed_from(stream))
            ):
                for job, row in entries:
                    if job > delivered or is_needed(stream, job):
                        self._note(job, row or ())
                read = max(read, last)
                size += 1 + len(entries) + (nbytes >> 10)
                if size >= most:
                    break
            else:
                read = stream.last_id
        self._read[priority] = stream.number, read
        return size

    def _note(self, job: int, row: Sequence[bytes]) -> None:
        origin = origin_of(row)
        first = None if origin is None else ids.parse_or_none(origin)
        if first is not None:
            self._now[first] = job

    def _drop_ended(self, core: Core) -> None:
        """Drop the notes of the jobs that ended in the unit before, if their entries are needed no more."""
        unit = core.log.next_lsn
        if unit != self._unit:
            self._unit = unit
            for first in self._ended:
                if first in self._now and self.find(core.state, first) is None:
                    del self._now[first]
            self._ended.clear()
