"""Look: the jobs of a lane that were delivered before, and that a worker gets again. A part of the fetch's decision."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import (
    NOBODY,
    XACK,
    Context,
    EntryRow,
    Group,
    Stream,
    decide_xadd_many,
    xtrim,
)
from tidelog.engine.idlist import pack
from tidelog.jobs import rows
from tidelog.jobs.dedup import let_go
from tidelog.jobs.options import Options
from tidelog.jobs.rows import Failure
from tidelog.jobs.streams import many, stream_at
from tidelog.jobs.units import UNIT_BYTES
from tidelog.jobs.work.alone import Asking
from tidelog.jobs.work.deaths import given_up
from tidelog.jobs.work.settle import failures
from tidelog.jobs.work.shared import Job, Shared

# One unit makes at most this many jobs dead jobs, with about UNIT_BYTES of values at most.
LOOK_MAX: Final = 100
ABANDONED: Final = "abandoned: the worker ended or dropped the job without finishing it"
ENDED: Final = -1  # instead of a worker's place in its history
# A worker's place in its own history in each lane, by priority: the next ID, or ENDED. A lane that is missing begins.
History = dict[int, int]


def was_lost(ctx: Context, shared: Shared, options: Options, job: int, count: int) -> bool:
    """[lock] Whether the delivery of this number is recorded as one that never finished."""
    if not count or job not in shared.failed:
        return False
    known = failures(shared, ctx, options, job)
    return any(each.deliveries == count and each.error == ABANDONED for each in known)


class Place:
    """A lane during one decision."""

    __slots__ = ("shared", "options", "stream", "group")

    def __init__(self, shared: Shared, options: Options, stream: Stream, group: Group) -> None:
        self.shared, self.options, self.stream, self.group = shared, options, stream, group


class Look:
    """Looks for jobs that were delivered before: own history, paused jobs that are due, abandoned jobs.

    A suspect (alone.py) is taken alone, or is held back.

    handled    jobs that end or go back in the same unit
    history    the worker's place in its own history, which moves; None after its end
    claims     job -> deliveries, this one included     got     the same jobs with their rows
    doomed     delivered too often                      gone    no entry: it was deleted
    limit      claims at most                           free    claims of jobs that nobody holds, at most
    resumed    claims of jobs that nobody held
    unsure     a server does not log which jobs its clients confirmed. So a job that an earlier server gave out, and
               that nobody has renewed since, is delivered once more before it is given up: perhaps no handler has begun
    """

    def __init__(
        self,
        ctx: Context,
        place: Place,
        worker: bytes,
        history: History | None,
        mono: float,
        handled: set[int],
        limit: int,
        free: float,
        unsure: bool,
        asking: Asking,
    ) -> None:
        self._asking = asking
        self._overran: set[int] | None = None
        self._born_ms = place.shared.core.opened_at[0] if unsure else 0
        self._limit, self._free, self.resumed = limit, free, 0
        self._ctx, self._mono = ctx, mono
        self._worker, self._history = worker, history
        self._shared, self._options = place.shared, place.options
        self._stream, self._group = place.stream, place.group
        self.claims: dict[int, int] = {}
        self.got: list[Job] = []
        self._doomed: list[Job] = []
        self._gone: list[int] = []
        self._abandoned: dict[int, Failure] = {}
        self._handled = handled
        living, self._lapsed = place.shared.held_jobs(mono)
        # Jobs that cannot be delivered now: those that this unit has handled already, and those that living workers
        # hold. A paused job is not among them, because no worker holds it.
        self._skip = living | handled
        self._doomed_bytes = 0

    def run(self) -> None:
        if self._history is not None:
            self._own(self._history)
        if self._mono >= self._shared.looks.get(self._options.retry_after, 0.0):
            self._paused()
            self._late()

    @property
    def _full(self) -> bool:
        return (
            self._asking.lone
            or len(self.claims) >= self._limit
            or len(self._doomed) >= LOOK_MAX
            or self._doomed_bytes >= UNIT_BYTES
        )

    def _own(self, history: History) -> None:
        """Take jobs pending for this worker's name that no living delivery holds."""
        pending, lane = self._group.pending, self._shared.priority
        consumer = self._group.consumers.get(self._worker)
        while consumer is not None and history.get(lane, 0) != ENDED and not self._full:
            page = pending.page(history.get(lane, 0), ids.MAX, LOOK_MAX, consumer.index)
            for job, time, _, count in page:
                if self._full:
                    return
                if job not in self._skip and not self._comes_later(job):
                    if not self._take(job, count, self._worker, time, True):
                        return
                history[lane] = job + 1
            if len(page) < LOOK_MAX:
                break
        if not self._full:
            history[lane] = ENDED

    def _comes_later(self, job: int) -> bool:
        """Whether the job waits until its lease is over, even for a worker of the same name: it was dropped, its
        delivery is beyond the time limit, or the lease was extended.
        """
        shared = self._shared
        hold = shared.extended.get(job)
        lent = hold is not None and hold.due > self._mono
        return lent or job in self._lapsed or job in shared.dropped

    def _paused(self) -> None:
        shared, pending = self._shared, self._group.pending
        if not shared.all_returned_known(self._group):
            shared.find_paused(self._group, self._mono)
        heap, again = shared.heap, []
        before = len(self.claims)
        while heap and heap[0][0] <= self._mono and not self._full and self.resumed < self._free:
            due, job = heappop(heap)
            hold = shared.paused.get(job)
            if hold is None or hold.due != due:
                continue
            if job in self._handled:  # given back just now: due at the next look
                again.append((due, job))
                continue
            row = pending.get(job)
            if row is None or row[1] != NOBODY:
                shared.drop_notes(self._ctx, self._options, (job,))  # settled or redelivered
            elif self._take(job, row[2], b"", 0, self._was_lost(job, row[2])):
                self.resumed = len(self.claims) - before
            else:
                again.append((due, job))
                if self._asking.enough:
                    break
        for item in again:
            heappush(heap, item)

    def _late(self) -> None:
        """Take jobs whose lease was not renewed for `retry_after`, oldest first."""
        shared, mono = self._shared, self._mono
        period = self._options.retry_after
        cutoff = self._ctx.now - int(period * 1000)
        look_at = mono + period
        owners, pending = self._group.owners, self._group.pending
        for time, job in pending.by_age(0):
            if time > cutoff:
                look_at = min(look_at, mono + (time - cutoff) / 1000)
                break
            if self._full:
                look_at = mono
                break
            if job in self._skip:
                look_at = min(look_at, mono + period / 3)
                continue
            hold = shared.extended.get(job)
            due = max(shared.dropped.get(job, 0.0), 0.0 if hold is None else hold.due)
            if due > mono:
                look_at = min(look_at, due)
                continue
            row = pending.get(job)
            assert row is not None
            owner = owners[row[1]]
            name = b"" if owner is None else owner.name
            if not self._take(job, row[2], name, time, self._is_suspect(job)):
                look_at = mono
                if self._asking.enough:
                    break
        if shared.heap:
            look_at = min(look_at, shared.heap[0][0])
        if len(shared.dropped) > len(pending):  # others settled some
            for job in [job for job in list(shared.dropped) if not pending.contains(job)]:
                shared.dropped.pop(job, None)
        shared.looks[period] = look_at

    def _is_suspect(self, job: int) -> bool:
        """Whether a job whose lease is over was lost with its worker, and not given up by that."""
        if job in self._shared.dropped:
            return False
        if self._overran is None:
            self._overran = self._shared.overran(self._mono) if self._lapsed else set()
        return job not in self._overran

    def _was_lost(self, job: int, count: int) -> bool:
        return was_lost(self._ctx, self._shared, self._options, job, count)

    def _is_culprit(self, job: int, count: int) -> bool:
        """Whether a suspect that was delivered as often as allowed ran alone the last time: the delivery before was
        lost too. Otherwise it was lost with others, and has one more delivery. One delivery at most means that the job
        never runs twice.
        """
        most = self._options.max_deliveries
        return count > most or most == 1 or self._was_lost(job, count - 1)

    def _may_take(self, suspect: bool) -> bool:
        asking = self._asking
        if not suspect:
            return not asking.only
        if self.claims or not asking.may_take():
            asking.hold_back()
            return False
        asking.lone = True
        return True

    def _take(self, job: int, count: int, worker: bytes, time: int, suspect: bool) -> bool:
        """Take a job, or end it. Returns False if it is held back."""
        row = self._stream.get(job)
        most = self._options.max_deliveries + (bool(worker) and time < self._born_ms)
        expired = row is not None and rows.is_expired(row, self._ctx.now)
        doomed = expired or count >= most and (not suspect or self._is_culprit(job, count))
        if row is not None and not doomed and not self._may_take(suspect):
            return False
        self._skip.add(job)
        self._handled.add(job)
        self._shared.dropped.pop(job, None)
        if row is None:
            self._gone.append(job)
            return True
        if worker:
            at = rows.moment(self._ctx.now)
            name = rows.shown(worker)
            self._abandoned[job] = Failure(rows.text(job), at, name, count, ABANDONED, "")
        if doomed:
            self._doomed.append((job, row, count))
            self._doomed_bytes += sum(map(len, row))
        else:
            self.claims[job] = count + 1
            self.got.append((job, row, count + 1))
        return True

    def dead(self) -> list[EntryRow]:
        """The entries for `<name>:dead`. Call it before `log`, which forgets the failures."""
        return [self._dead(job) for job in self._doomed]

    def log(self) -> list[int]:
        """Append the effects of all but the claims and the entries of dead jobs. Returns the jobs that become dead
        jobs, to be logged as done.
        """
        ctx, options, shared = self._ctx, self._options, self._shared
        if self._abandoned:
            stream_at(ctx, options.failures_key)
            # Trim only whole nodes (`~`), and never the last one. The trim is not applied before `decide_xadd_many`
            # below, which adds to the open node of the stream as it is now. The next failure or beat trims exactly.
            latest = list(self._abandoned.items())[-options.max_failures :]
            most = b"%d" % max(1, options.max_failures - len(latest))
            xtrim(ctx, [b"XTRIM", options.failures_key, b"MAXLEN", b"~", most])
            told = [
                rows.failure_row(options, job, failure.worker.encode(), failure.deliveries, failure.error, "")
                for job, failure in latest
            ]  # fmt: skip
            added = many(decide_xadd_many(ctx, options.failures_key, told))
            for (job, _), entry in zip(latest, added, strict=True):
                shared.remember_failure(job, entry)
        doomed = [job for job, _, _ in self._doomed]
        shared.drop_notes(ctx, options, [*self.claims, *doomed, *self._gone])
        for job in (*doomed, *self._gone):
            shared.failed.pop(job, None)
        if self._gone:
            if shared.limited:
                shared.freed(self._gone)
            ctx.effects += let_go(ctx, options, self._stream, self._gone)
            ctx.effects.append(
                (XACK, ctx.db, options.key, options.group_key, pack(sorted(self._gone)))
            )
        return doomed

    def _dead(self, doomed: Job) -> EntryRow:
        job, row, count = doomed
        options = self._options
        known = failures(self._shared, self._ctx, options, job)
        if job in self._abandoned:
            known.append(self._abandoned[job])
        reason = rows.EXPIRED
        if not rows.is_expired(row, self._ctx.now):
            reason = given_up(count, ": never finished")
        return rows.dead_row(options, job, row, count, reason, known)
