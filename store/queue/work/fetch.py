"""Fetch: which jobs a worker gets next. One decision under the store's lock, made again when a parked worker wakes.

Order: jobs that this worker's name held when its earlier life ended; jobs whose pause is over, and abandoned jobs; new
jobs. A job that was delivered too often becomes a dead job instead. Gathered acknowledgements are written in the same
unit.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import (
    NOBODY,
    XACK,
    XNACK,
    Context,
    Entries,
    EntryRow,
    Group,
    Stream,
    decide_xadd_many,
    log_claim,
    log_new,
    next_one,
    reading,
    xtrim,
)
from tidelog.engine.idlist import pack
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.store.errors import StoreClosed
from tidelog.store.queue import rows
from tidelog.store.queue.options import Options
from tidelog.store.queue.rows import Failure
from tidelog.store.queue.streams import among_held, many, stream_at
from tidelog.store.queue.units import UNIT_BYTES
from tidelog.store.queue.work.limits import LOOK_SECONDS, Delivered, free_places
from tidelog.store.queue.work.results import first_id_of_dead
from tidelog.store.queue.work.settle import failures, log_done
from tidelog.store.queue.work.shared import Delivery, Hold, Job, Leftover, Shared

# One unit makes at most this many jobs dead jobs, with about UNIT_BYTES of values at most.
LOOK_MAX: Final = 100
ABANDONED: Final = "abandoned: the worker ended or dropped the job without finishing it"

DELIVERED: Final = b"delivered"
NEXT: Final = b"next"  # delivered: one new job and nothing else
NO_GROUP: Final = b"no group"  # the queue's stream or group is missing
AGAIN: Final = b"again"  # nothing yet; ask once more
MORE: Final = b"more"  # jobs only became dead; look further


def closing() -> StoreClosed:
    """The error for a worker that asks for a job while the store is being closed."""
    return StoreClosed("the store is being closed and delivers no more jobs")


class Fetch:
    """One worker's request, and afterwards the delivery it got. Can be made again once it is answered.

    batch       how many jobs at most
    timeout_ms  how long to wait for the first one: 0 = for ever, None = not at all
    history     where the worker is in its own history, None after the end
    time_limit  seconds for which its leases are renewed at most, None = without limit

    Set for each request:

    delivery    holds the jobs; empty before. Removed from the request afterwards: only the jobs keep it alive
    before      the previous delivery, whose gathered acknowledgements are written too
    """

    __slots__ = (
        *("shared", "options", "worker", "batch", "timeout_ms", "history", "before", "delivery"),
        *("time_limit", "_writing", "_held", "_left", "_single"),
    )

    def __init__(
        self,
        shared: Shared,
        options: Options,
        worker: bytes,
        batch: int,
        timeout_ms: int | None,
        history: int | None,
        time_limit: float | None,
    ) -> None:
        self.shared, self.options, self.worker = shared, options, worker
        self.batch, self.timeout_ms, self.history = batch, timeout_ms, history
        self.time_limit = time_limit
        self.delivery: Delivery
        self.before: Delivery | None = None
        self._writing: list[int] = []
        self._held: list[int] = []
        self._left: list[Leftover] = []
        self._single = batch == 1 and not options.limited
        if options.limited:
            shared.limited = True

    def written(self) -> None:
        """The acknowledgements that the last decision included are in the log."""
        if self._writing:
            assert self.before is not None
            self.before.written(self._writing, self._held)
            self._writing = []
        if self._left:
            self.shared.dealt_with(self._left)
            self._left = []

    def failed(self) -> None:
        """The last decision failed or its outcome is unknown: its acknowledgements have to be written (again)."""
        if self._writing:
            assert self.before is not None
            self.before.finished.extendleft(reversed(self._writing))
            self._writing = []
        self._left = []

    def __call__(self, ctx: Context) -> Reply:
        shared, options = self.shared, self.options
        if shared.closing:
            raise closing()
        if self._writing or self._left:
            self.written()
        stream = ctx.stream(options.key)
        group = None if stream is None else stream.groups.get(options.group_key)
        if stream is None or group is None:
            return NO_GROUP
        if shared.number != stream.number:
            shared.fresh(ctx, options, stream, group)
        mono = shared.monotonic()
        look = self.history is not None or mono >= shared.looks.get(options.retry_after, 0.0)
        delivery = self.delivery
        if self._single and not look and self.before is None and not shared.leftovers:
            # No older job can be due, as in nearly every fetch with batch=1. This branch does the same as the code
            # below, but faster.
            new = next_one(ctx, options.key, stream, group, self.worker)
            if new is not None and (len(new[1]) == 2 or not rows.is_expired(new[1], ctx.now)):
                job, row = new
                delivery.open[job] = 1
                delivery.jobs = [(job, row, 1)]
                delivery.renewed = mono
                if self.time_limit is not None:
                    delivery.until = mono + self.time_limit
                return NEXT
            if new is not None:
                ctx.effects.pop()  # the job is expired: it is not delivered
        for _ in range(LOOK_MAX):
            reply = self._decide(ctx, stream, group, mono)
            if reply is not MORE:
                return reply
            effects, ctx.effects = ctx.effects, []
            shared.core.landing.land(effects)
            self.written()
        return AGAIN

    def _decide(self, ctx: Context, stream: Stream, group: Group, mono: float) -> Reply:
        """Decide the general way. MORE: all jobs found were expired. When that is in the log, decide once more."""
        shared, options, delivery = self.shared, self.options, self.delivery
        period = options.retry_after
        later_at = math.inf
        timely = mono >= shared.looks.get(period, 0.0)
        if timely:
            core = shared.core
            # Ticks first: they put jobs that are due now.
            ticks_in = shared.ticks.advance(core, ctx)
            later_at = mono + min(ticks_in, shared.later.advance(core, ctx, options))
        look = self.history is not None or timely
        done: list[int] = []
        if self.before is not None and self.before.finished:
            self._writing = self.before.take_finished()
            self._held = self.before.still_held(group, self._writing)
            done += self._held
        if shared.leftovers:
            self._left = log_leftovers(shared, ctx, stream, group, mono)
        claims: dict[int, int] = {}
        got: list[Job] = []
        dead: list[EntryRow] = []
        limit, free = self.batch, math.inf
        rate: Delivered | None = None
        if options.limited:
            free = free_places(group, options.concurrency, len(done))
            if options.rate is not None:
                rate = Delivered(ctx, options.rate_key, options.rate)
                limit = min(limit, rate.left)
        if look:
            old = _Look(self, ctx, stream, group, mono, done, limit, free)
            old.run()
            free -= old.resumed
            claims, got = old.claims, old.got
            dead = old.dead()
            done += old.log()
            if timely:
                shared.looks[period] = min(shared.looks[period], later_at)
        left = int(min(limit - len(claims), max(0, free)))
        if left and stream.length and stream.last_live_id() > group.last_id:
            fresh = reading.after(stream, group.last_id, left)
            late: dict[int, EntryRow] = {}
            if not all(part.lacks(rows.EXPIRES) for part in fresh.parts):
                while (late := _expired(fresh, ctx.now)) and left > 1 and _too_much(late):
                    left = max(1, left // 4)
                    fresh = reading.after(stream, group.last_id, left)
                if late:
                    dead += [
                        rows.dead_row(options, job, row, 0, rows.EXPIRED, ())
                        for job, row in late.items()
                    ]
                    done += late
            log_new(ctx, options.key, stream, group, self.worker, fresh)
            if late:
                fit: Any = [(job, row, 1) for job, row in fresh if job not in late]
                delivery.open = dict.fromkeys([job for job, _, _ in fit], 1)
                got += fit
            else:
                found = fresh.ids()
                delivery.open = dict.fromkeys(found, 1)
                whole: Any = chain.from_iterable(part.rows() for part in fresh.parts)
                got += zip(found, whole, repeat(1))
        if claims:
            delivery.open.update(claims)
            log_claim(
                ctx, options.key, options.group_key, self.worker, claims, ctx.now, ctx.now, ()
            )
        if dead:
            stream_at(ctx, options.dead_key)
            decide_xadd_many(ctx, options.dead_key, dead)
            shared.ended(first_id_of_dead(row) for row in dead)
        if done:
            log_finished(shared, options, ctx, stream, done)
        if dead and not got:
            return MORE
        if got:
            if rate is not None:
                rate.log(ctx, len(got))
            got.reverse()
            delivery.jobs = got
            delivery.renewed = mono
            if self.time_limit is not None:
                delivery.until = mono + self.time_limit
            return DELIVERED
        if self.timeout_ms is None:
            # This unit itself may have returned jobs to the queue. Only a new request can get them, so AGAIN asks the
            # caller to make one.
            return AGAIN if any(leftover.unseen for leftover in self._left) else NULL_ARRAY
        look_at = min(shared.looks[options.retry_after], mono + options.retry_after)
        if limit == 0 or free <= 0:
            # Nothing can be delivered sooner, though older jobs may be due. Nobody need end a job for a rate to allow
            # the next one, and another client's acknowledgement wakes nobody.
            wait = LOOK_SECONDS if rate is None or limit else rate.wait_ms / 1000
            look_at = mono + max(0.001, min(wait, LOOK_SECONDS))
        return Park([(ctx.db, options.key)], [b"XREADGROUP"], self.timeout_ms, None, look_at)


def _expired(fresh: Entries, now: int) -> dict[int, EntryRow]:
    """Those of the new jobs that are too old to be delivered."""
    return {job: row for job, row in fresh if row is not None and rows.is_expired(row, now)}


def _too_much(late: dict[int, EntryRow]) -> bool:
    """Whether one unit should not make so many jobs dead jobs."""
    return len(late) > LOOK_MAX or sum(sum(map(len, row)) for row in late.values()) > UNIT_BYTES


def log_finished(
    shared: Shared, options: Options, ctx: Context, stream: Stream, jobs: list[int]
) -> None:
    """[lock] Log that these jobs are done."""
    if shared.extended or shared.failed:
        shared.drop_notes(ctx, options, jobs)
        for job in jobs:
            shared.failed.pop(job, None)
    log_done(ctx, options, stream, jobs)
    shared.unswept += len(jobs)
    if shared.limited:
        shared.freed()
    shared.ended(map(ids.text, jobs))


def log_leftovers(
    shared: Shared, ctx: Context, stream: Stream, group: Group, mono: float
) -> list[Leftover]:
    """[lock] Write what ended deliveries left behind: finished jobs are done, unseen ones go back.

    The leftovers stay listed until the unit is in the log (`Shared.dealt_with`). Writing one twice does nothing.
    """
    left = list(shared.leftovers)
    for leftover in left:
        counts, worker = leftover.open, leftover.worker
        wanted = [(job, counts.get(job, 0)) for job in leftover.finished]
        done = among_held(group, worker, wanted)
        if done:
            log_finished(shared, leftover.options, ctx, stream, done)
        give_back(shared, leftover.options, ctx, group, worker, leftover.unseen, mono)
        shared.dropped.update(leftover.let_go())
    return left


def give_back(
    shared: Shared,
    options: Options,
    ctx: Context,
    group: Group,
    worker: bytes,
    unseen: list[Job],
    mono: float,
) -> None:
    """[lock] Undo the delivery of jobs that were fetched but never handed to the worker."""
    counts = {job: count for job, _, count in unseen}
    back = among_held(group, worker, counts.items())
    if back:
        shared.drop_notes(ctx, options, back)
        less = tuple(max(counts[job] - 1, 0) for job in back)
        key, name = options.key, options.group_key
        ctx.effects.append((XNACK, ctx.db, key, name, pack(back), less))
        for job in back:
            shared.pause(job, Hold(mono, 0))


class _Look:
    """Looks for jobs that were delivered before: own history, paused jobs that are due, abandoned jobs.

    claims     job -> deliveries, this one included     got     the same jobs with their rows
    doomed     delivered too often                      gone    no entry: it was deleted
    limit      claims at most                           free    claims of jobs that nobody holds, at most
    resumed    claims of jobs that nobody held
    """

    def __init__(
        self,
        fetch: Fetch,
        ctx: Context,
        stream: Stream,
        group: Group,
        mono: float,
        done: list[int],
        limit: int,
        free: float,
    ) -> None:
        self._limit, self._free, self.resumed = limit, free, 0
        self._fetch, self._ctx, self._mono = fetch, ctx, mono
        self._stream, self._group = stream, group
        self.claims: dict[int, int] = {}
        self.got: list[Job] = []
        self._doomed: list[Job] = []
        self._gone: list[int] = []
        self._abandoned: dict[int, Failure] = {}
        self._handled = set(done)
        for leftover in fetch._left:
            self._handled.update(leftover.finished)
            self._handled.update(job for job, _, _ in leftover.unseen)
        living, self._lapsed = fetch.shared.held_jobs(mono)
        # Jobs that cannot be delivered now: those that this unit has handled already, and those that living workers
        # hold. A paused job is not among them, because no worker holds it.
        self._skip = living | self._handled
        self._doomed_bytes = 0

    def run(self) -> None:
        if self._fetch.history is not None:
            self._own()
        if self._mono >= self._fetch.shared.looks.get(self._fetch.options.retry_after, 0.0):
            self._paused()
            self._late()

    @property
    def _full(self) -> bool:
        return (
            len(self.claims) >= self._limit
            or len(self._doomed) >= LOOK_MAX
            or self._doomed_bytes >= UNIT_BYTES
        )

    def _own(self) -> None:
        """Take jobs pending for this worker's name that no living delivery holds."""
        fetch, pending = self._fetch, self._group.pending
        consumer = self._group.consumers.get(fetch.worker)
        while consumer is not None and fetch.history is not None and not self._full:
            page = pending.page(fetch.history, ids.MAX, LOOK_MAX, consumer.index)
            for job, _, _, count in page:
                if self._full:
                    return
                fetch.history = job + 1
                if job not in self._skip and not self._comes_later(job):
                    self._take(job, count, fetch.worker)
            if len(page) < LOOK_MAX:
                break
        if not self._full:
            fetch.history = None
            fetch.shared.returned.add(fetch.worker)

    def _comes_later(self, job: int) -> bool:
        """Whether the job waits until its lease is over, even for a worker of the same name: it was dropped, its
        delivery is beyond the time limit, or the lease was extended.
        """
        shared = self._fetch.shared
        hold = shared.extended.get(job)
        lent = hold is not None and hold.due > self._mono
        return lent or job in self._lapsed or job in shared.dropped

    def _paused(self) -> None:
        shared, pending = self._fetch.shared, self._group.pending
        if pending.nacked() > len(shared.paused):
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
                shared.drop_notes(self._ctx, self._fetch.options, (job,))  # settled or redelivered
            else:
                self._take(job, row[2], b"")
                self.resumed = len(self.claims) - before
        for item in again:
            heappush(heap, item)

    def _late(self) -> None:
        """Take jobs whose lease was not renewed for `retry_after`, oldest first."""
        shared, mono = self._fetch.shared, self._mono
        period = self._fetch.options.retry_after
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
            self._take(job, row[2], b"" if owner is None else owner.name)
        if shared.heap:
            look_at = min(look_at, shared.heap[0][0])
        if len(shared.dropped) > len(pending):  # others settled some
            for job in [job for job in list(shared.dropped) if not pending.contains(job)]:
                shared.dropped.pop(job, None)
        shared.looks[period] = look_at

    def _take(self, job: int, count: int, worker: bytes) -> None:
        self._skip.add(job)
        self._handled.add(job)
        self._fetch.shared.dropped.pop(job, None)
        row = self._stream.get(job)
        if row is None:
            self._gone.append(job)
            return
        if worker:
            at = rows.moment(self._ctx.now)
            name = rows.shown(worker)
            self._abandoned[job] = Failure(rows.text(job), at, name, count, ABANDONED, "")
        expired = rows.is_expired(row, self._ctx.now)
        if expired or count >= self._fetch.options.max_deliveries:
            self._doomed.append((job, row, count))
            self._doomed_bytes += sum(map(len, row))
        else:
            self.claims[job] = count + 1
            self.got.append((job, row, count + 1))

    def dead(self) -> list[EntryRow]:
        """The entries for `<name>:dead`. Call it before `log`, which forgets the failures."""
        return [self._dead(job) for job in self._doomed]

    def log(self) -> list[int]:
        """Append the effects of all but the claims and the entries of dead jobs. Returns the jobs that become dead
        jobs, to be logged as done.
        """
        ctx, options, shared = self._ctx, self._fetch.options, self._fetch.shared
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
            ctx.effects.append(
                (XACK, ctx.db, options.key, options.group_key, pack(sorted(self._gone)))
            )
        return doomed

    def _dead(self, doomed: Job) -> EntryRow:
        job, row, count = doomed
        options = self._fetch.options
        known = failures(self._fetch.shared, self._ctx, options, job)
        if job in self._abandoned:
            known.append(self._abandoned[job])
        reason = rows.EXPIRED
        if not rows.is_expired(row, self._ctx.now):
            reason = f"given up after {count} deliveries: never finished"
        return rows.dead_row(options, job, row, count, reason, known)
