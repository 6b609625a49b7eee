"""Later: jobs that are due at a later time. Decisions under the store's lock.

A delayed job is an entry of the stream `NAME:later`. It is pending there in the group `due`, for the consumer `later`,
and its time of delivery is the time at which it is due, less SHIFT_MS. So the pending entries of that group are the
index of the delayed jobs: by ID, for a job that is cancelled or moved, and by time, for those that are due. Both orders
leave memory with a checkpoint, as those of any group do; nothing is read when a store opens.

    put      XADD, XCLAIM              cancel     XACKDEL              move    XCLAIM
    due      XADD to the queue's stream with the field `origin`, XACKDEL: one unit, made by the first fetch that finds
             the jobs due. So a crash loses none and puts none twice

The delivery times lie SHIFT_MS in the past, because XCLAIM replaces a time in the future by the current one: the log
must give the same state in a real Redis.

A job that was put with `delay` is due by the store's time, which never goes back; a job that was put with `at`, when
the wall clock shows that time, or `lease` later. The delivery count tells the two apart. The two clocks are the
same unless the wall clock was set back. If it leaps forward while the store is open, a delay is still waited for in
full, as a pause is.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import accumulate, islice, takewhile
from typing import Any, Final

from tidelog.engine.api import (
    DELIVER,
    Context,
    EntryRow,
    Group,
    State,
    Stream,
    decide_xadd_many,
    log_acked,
    reading,
)
from tidelog.engine.idlist import pack, pack_one, pack_run
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.ids import text as id_text
from tidelog.jobs.dedup import TAKER, table_at, taking
from tidelog.jobs.lanes import HIGHEST_FIRST, log_into_lane, open_lane
from tidelog.jobs.options import SCHEDULES, Options
from tidelog.jobs.rows import ORIGIN, milliseconds, moment, priority_of
from tidelog.jobs.streams import many, stream_at
from tidelog.jobs.units import UNIT_BYTES
from tidelog.store.clock import Times
from tidelog.store.commit.core import Core
from tidelog.store.durations import SECONDS_MAX, Duration, seconds
from tidelog.store.errors import DataError

GROUP: Final = b"due"
CONSUMER: Final = b"later"
SUFFIX: Final = b":later"  # of the key of a stream of delayed jobs
SHIFT_MS: Final = 500_000_000_000  # almost 16 years; more than the longest delay
# IDs of delayed jobs have at least this sequence number. No queue adds as many jobs in one millisecond, so an ID names
# either a delayed job or a job that was put at once, and `Job.origin` is unique. IDs below 2**22 pack well.
FIRST_SEQ: Final = 1 << 21
AT: Final = 0  # delivery count of a job that is due at a time of the wall clock
AFTER: Final = 1  # delivery count of a job that is due after a delay
# Jobs that one unit moves to the queue's stream, with about UNIT_BYTES of values at most.
MOVE_JOBS: Final = 1_000
LANES_SECONDS: Final = 1.0  # after this time, puts look again for lanes of other clients
LEAP_MS: Final = (
    1_000  # the wall clock leapt if it gained this much on the monotonic clock between two looks
)


def has_due_times(key: bytes, group: bytes) -> bool:
    """Whether the pending entries of a group are no deliveries: their times say when jobs, or the ticks of schedules
    (jobs/rules.py), are due.
    """
    return group == GROUP and (key == SCHEDULES or key.endswith(SUFFIX))


class Due:
    """When a job is due: `delay_ms` after it is put, or at `at_ms`, unix ms. One of them is None."""

    __slots__ = ("delay_ms", "at_ms")

    def __init__(self, delay_ms: int | None, at_ms: int | None) -> None:
        self.delay_ms, self.at_ms = delay_ms, at_ms

    @property
    def kind(self) -> int:
        """The delivery count that says which of the two it is."""
        return AFTER if self.at_ms is None else AT

    def moment(self, now: int) -> int:
        """The time in unix ms if the job is put at `now`, a time of the clock by which it is due."""
        return self.at_ms if self.at_ms is not None else now + (self.delay_ms or 0)

    def by_store(self, times: Times) -> int:
        """The time in unix ms of the store's time."""
        return self.moment(times.store) + (0 if self.at_ms is None else times.lead)


def when(delay: Duration | None, at: datetime | None) -> tuple[int | None, int | None]:
    """The arguments `delay` and `at` as ms and unix ms. Raises DataError."""
    if at is None:
        length = None if delay is None else round(seconds("delay", delay, zero=True) * 1000)
        return length, None
    if delay is not None:
        raise DataError("give either delay or at, not both")
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise DataError(f"at must be a datetime with a time zone, not {at!r}")
    return None, milliseconds(at.astimezone(UTC))


def due_in(delay_ms: int | None, at_ms: int | None, wall_ms: int) -> Due | None:
    """The Due of a delay or of a time; None if the job is due at once. Raises DataError."""
    if at_ms is None:
        return Due(delay_ms, None) if delay_ms else None
    if at_ms - wall_ms > SECONDS_MAX * 1000:
        raise DataError(
            f"at must be at most {SECONDS_MAX:.0f} seconds from now, not {moment(at_ms)}"
        )
    return Due(None, at_ms) if at_ms > wall_ms else None


def later_of(state: State, db: int, options: Options) -> tuple[Stream, Group] | None:
    """The stream of delayed jobs and its group, None if missing. A key of another type counts as missing."""
    value = state.databases[db].keys.get(options.later_key)
    return _group_of(value) if isinstance(value, Stream) else None


def find_later(ctx: Context, options: Options) -> tuple[Stream, Group] | None:
    """As `later_of`, in a decision. Raises ResponseError for a key of another type."""
    stream = stream_at(ctx, options.later_key)
    return None if stream is None else _group_of(stream)


def _group_of(stream: Stream) -> tuple[Stream, Group] | None:
    group = stream.groups.get(GROUP)
    return None if group is None else (stream, group)


def create_words(options: Options) -> list[bytes]:
    """The command that creates the stream and the group."""
    return [b"XGROUP", b"CREATE", options.later_key, GROUP, b"0", b"MKSTREAM"]


def is_delayed(job: int) -> bool:
    """Whether an ID is that of a delayed job."""
    return job & SEQ_MAX >= FIRST_SEQ


def next_later(last_id: int, now: int) -> int:
    """The ID of the next delayed job; see FIRST_SEQ."""
    if now > last_id >> 64:
        return now << 64 | FIRST_SEQ
    return max(last_id + 1, last_id >> 64 << 64 | FIRST_SEQ)


def time_of(due_ms: int) -> int:
    """The delivery time that stands for a due time. Raises DataError if the clock is wrong by decades."""
    if due_ms < SHIFT_MS:
        raise DataError(
            f"a job cannot be due {due_ms} ms after 1970: delayed jobs need a clock that shows the year 1986 or later"
        )
    return due_ms - SHIFT_MS


def log_delayed(
    ctx: Context, options: Options, stream: Stream, first: int, count: int, due_ms: int, kind: int
) -> None:
    """[lock] Log when `count` entries from the ID `first` on, which the unit has just added, are due."""
    ms, seq = first >> 64, first & SEQ_MAX
    added = pack_one(first) if count == 1 else pack_run(ms, seq, count)
    key, time, read = options.later_key, time_of(due_ms), stream.entries_added + count
    ctx.effects.append(
        (
            DELIVER,
            ctx.db,
            key,
            GROUP,
            CONSUMER,
            added,
            time,
            kind,
            ctx.now,
            ms,
            seq + count - 1,
            read,
        )
    )


def delayed_words(options: Options, entry_id: int, due_ms: int, kind: int) -> list[bytes]:
    """The command that says when an entry is due. As `log_delayed`, for units of commands."""
    job = id_text(entry_id)
    return [
        *(b"XCLAIM", options.later_key, GROUP, CONSUMER, b"0", job, b"TIME"),
        *(b"%d" % time_of(due_ms), b"RETRYCOUNT", b"%d" % kind, b"FORCE", b"JUSTID"),
        *(b"LASTID", job),
    ]


class Later:
    """Knowledge about the delayed jobs of one queue of one open store, which all of its groups share.

    next_ms    when they look next at the latest: the earliest due time that they were told of, NEVER = none
    groups     those that are told of an earlier one
    _told      the priorities of which the groups were told. A group that comes later finds the lanes itself
    _lanes     the lanes that `lanes` found, until _lanes_at, monotonic seconds
    _drift     how far the wall clock was ahead of the time since opening at the last look, in ms
    _leaps     (unix ms, length in ms) of the leaps of the wall clock: jobs put before wait that much longer
    lead       how far the store's time was ahead of the wall clock at the last look, in ms
    """

    def __init__(self, core: Core, db: int, key: bytes) -> None:
        self.place = db, key
        self.next_ms = math.inf
        self.groups: weakref.WeakSet[Any] = weakref.WeakSet()
        self._leaps: list[tuple[int, int]] = []
        self._told: set[int] = set()
        self._lanes: tuple[int, ...] = ()
        self._lanes_at = 0.0
        self.lead = self._drift = 0
        self._drift = self._ahead(core, core.now)

    # --- the clocks

    def _ahead(self, core: Core, now: int) -> int:
        ms, at = core.opened_at
        return now - ms - int((core.monotonic() - at) * 1000)

    def watch_clock(self, core: Core, now: int) -> None:
        """[lock] Note a leap of the wall clock, and how far the store's time leads it."""
        self.lead = core.clocks(now).lead
        ahead = self._ahead(core, now)
        leap = ahead - self._drift
        if leap >= LEAP_MS:
            self._leaps.append((now - leap, leap))
            self._drift = ahead

    def _due(self, group: Group, time: int, job: int) -> int:
        """When a job is due, in unix ms of the store's time."""
        due = time + SHIFT_MS
        if self.disordered:
            row = group.pending.get(job)
            if row is not None and row[2] == AFTER:
                due += sum(leap for at, leap in self._leaps if job >> 64 <= at)
            else:
                due += self.lead
        return due

    # --- looking

    def due_of(self, core: Core, group: Group, job: int, now: int) -> tuple[int, int]:
        """[lock] When a delayed job is due: by the store's time, and by the wall clock, unix ms."""
        self.watch_clock(core, now)
        row = group.pending.get(job)
        due = now if row is None else self._due(group, row[0], job)
        return due, due - self.lead

    @property
    def disordered(self) -> bool:
        """Whether the wall clock leapt or is behind, so that jobs are not due in the order of their times."""
        return bool(self._leaps or self.lead)

    def listed(self, group: Group) -> Iterator[tuple[int, int]]:
        """(due time, job) of all delayed jobs in the order of their times."""
        for time, job in group.pending.by_age(0):
            yield self._due(group, time, job), job

    def due(self, group: Group, now: int) -> Iterator[int]:
        """The jobs that are due, in the order of their times."""
        end, disordered = now - SHIFT_MS, self.disordered
        for time, job in group.pending.by_age(0):
            if time > end:
                return
            if not disordered or self._due(group, time, job) <= now:
                yield job

    def count_due(self, core: Core, found: tuple[Stream, Group] | None, now: int) -> int:
        """[lock] How many jobs are due and still in `NAME:later`."""
        if found is None or not len(found[1].pending):
            return 0
        self.watch_clock(core, now)
        if not self.disordered:
            return found[1].pending.until(now - SHIFT_MS)
        return sum(1 for _ in self.due(found[1], now))

    # --- changing

    def hear(self, core: Core, due_ms: int, now: int) -> None:
        """[lock] A job was put or moved, and is due at `due_ms` of the store's time. If that is before all others, tell
        the workers, also those that wait.
        """
        if due_ms < self.next_ms:
            self.next_ms = due_ms
            at = core.monotonic() + max(0, due_ms - now) / 1000
            for known in list(self.groups):
                known.hasten(at)
            core.waiting.signal([self.place])

    def lanes(self, core: Core, ctx: Context, options: Options) -> tuple[int, ...]:
        """[lock] The priorities of the lanes above 0 that exist, without those that another client made a moment ago.

        For puts, which ask each time.
        """
        mono = core.monotonic()
        if mono >= self._lanes_at:
            keys = ctx.database.keys
            self._lanes = tuple(each for each in HIGHEST_FIRST if options.lane(each).key in keys)
            self._lanes_at = mono + LANES_SECONDS
        return self._lanes

    def stale(self) -> None:
        """Memory was rebuilt."""
        self._lanes_at = 0.0

    def hear_lane(self, core: Core, priority: int) -> None:
        """[lock] Jobs are put into the lane of this priority: tell all groups, and wake the workers that wait."""
        if priority not in self._told:
            self._told.add(priority)
            self._lanes_at = 0.0
            for known in list(self.groups):
                known.add_lane(priority)
        core.waiting.signal([self.place])

    def advance(self, core: Core, ctx: Context, options: Options) -> float:
        """[lock] Move the jobs that are due to the queue's stream, as a unit of its own. Returns when to look next, in
        seconds from now; inf if no job is delayed.
        """
        found = find_later(ctx, options)
        self.next_ms = math.inf
        if found is None or not len(found[1].pending):
            return math.inf
        now = ctx.now
        self.watch_clock(core, now)
        self._move(core, ctx, options, *found)
        for time, job in found[1].pending.by_age(0):
            self.next_ms = min(self.next_ms, max(now, self._due(found[1], time, job)))
            # Jobs follow in the order of their times. Only changes of the clock make a later one due first.
            if not self.disordered or max(now, time + SHIFT_MS) >= self.next_ms:
                break
        return max(0.0, self.next_ms - now) / 1000

    def _move(
        self, core: Core, ctx: Context, options: Options, stream: Stream, group: Group
    ) -> None:
        jobs = list(islice(self.due(group, ctx.now), MOVE_JOBS))
        whole = _rows(stream, jobs)
        sizes = accumulate(len(whole[job][1]) if job in whole else 0 for job in jobs)
        del jobs[1 + sum(1 for _ in takewhile(UNIT_BYTES.__gt__, sizes)) :]
        here = [job for job in jobs if job in whole]  # another client may have deleted an entry
        if not jobs:
            return
        put: dict[int, list[EntryRow]] = {}
        moved: dict[int, list[int]] = {}
        for job in here:
            row = whole[job]
            priority = priority_of(row)
            put.setdefault(priority, []).append((*row, ORIGIN, id_text(job)))
            moved.setdefault(priority, []).append(job)
        for priority in put:
            if priority:
                open_lane(core, ctx, options, priority)  # units of their own, so they come first
        for priority, rows in put.items():
            if priority:
                first = log_into_lane(ctx, options, priority, rows)
                self.hear_lane(core, priority)
                added = range(first, first + len(rows))
            else:
                added = many(decide_xadd_many(ctx, options.key, rows))
            _take_along(ctx, options, moved[priority], added)
        log_acked(ctx, options.later_key, stream, GROUP, pack(sorted(jobs)), sorted(here))
        effects, ctx.effects = ctx.effects, []
        core.landing.land(effects)


def _take_along(ctx: Context, options: Options, jobs: list[int], entries: range) -> None:
    """[lock] Log that these jobs hold their dedup IDs at their new entries."""
    table = table_at(ctx, options.root, TAKER)
    if table is not None:
        for job, entry in zip(jobs, entries, strict=True):
            iid = table.owned(TAKER, job)
            if iid is not None:
                ctx.effects.append(taking(ctx.db, options, iid, entry))


def _rows(stream: Stream, jobs: list[int]) -> Mapping[int, EntryRow]:
    """The rows of these entries, without those that were deleted."""
    if not jobs:
        return {}
    first, last = min(jobs), max(jobs)
    # Jobs with one delay are due in the order of their puts: nearly always a run of entries, which is read faster.
    run = reading.between(stream, first, last, len(jobs) + 1)
    if len(run) == len(jobs) and set(jobs).issuperset(run.ids()):
        return dict(run)  # type: ignore[arg-type]
    # in the order of the stream, so that each node is decoded once
    return {job: row for job in sorted(jobs) if (row := stream.get(job)) is not None}
