"""Look: the sources of jobs that were delivered before, and that a worker gets again. See selection.py."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import NOBODY, XACK, Context, EntryRow, decide_xadd_many, xtrim
from tidelog.engine.idlist import pack
from tidelog.jobs import rows
from tidelog.jobs.dedup import let_go
from tidelog.jobs.options import Options
from tidelog.jobs.rows import Failure
from tidelog.jobs.streams import many, stream_at
from tidelog.jobs.work.alone import Asking
from tidelog.jobs.work.deaths import given_up
from tidelog.jobs.work.known import HOME, Delivery, JobEntry, Known
from tidelog.jobs.work.selection import DEAD_MAX, ENDED, Decision, History, Selection
from tidelog.jobs.work.settle import failures

ABANDONED: Final = "abandoned: the worker ended or dropped the job without finishing it"


def was_lost(ctx: Context, known: Known, options: Options, job: int, count: int) -> bool:
    """[lock] Whether the delivery of this number is recorded as one that never finished."""
    if not count or job not in known.failed:
        return False
    earlier = failures(known, ctx, options, job)
    return any(each.deliveries == count and each.error == ABANDONED for each in earlier)


class Look:
    """Two sources of a lane: the worker's own history; and paused jobs that are due, with lost ones.

    A suspect (alone.py) is taken alone, or is passed over.

    A delivery that no handler saw is no delivery. So a job of a client that let its lease end before it confirmed
    (server/jobs.py) is delivered with the same number again.

    If the decision is `unsure`, a server does not log which jobs its clients confirmed. So a job that an earlier server
    gave out, and that nobody has renewed since, is delivered once more before it is given up: perhaps no handler has
    begun.

    _gone      jobs without an entry: it was deleted
    _handled   jobs that end or go back in the same unit
    _skip      these, and those that living workers hold: they cannot be delivered now. A paused job is not among them,
               because no worker holds it
    """

    def __init__(self, now: Decision, found: Selection, asking: Asking) -> None:
        lane = found.lane
        self._ctx, self._mono, self._worker = now.ctx, now.mono, now.worker
        self._history, self._limits = now.history, now.limits
        self._known, self._options = lane.known, lane.options
        self._stream, self._group = lane.stream, lane.group
        self._lane, self._found, self._asking = lane, found, asking
        self._overran: set[int] | None = None
        self._unconfirmed: dict[int, tuple[Delivery, JobEntry]] | None = None
        self._born_ms = lane.known.core.opened_at[0] if now.unsure else 0
        self._doomed: list[int] = []
        self._gone: list[int] = []
        self._abandoned: dict[int, Failure] = {}
        self._handled = now.ends.handled_in(lane.known).union(found.done)
        living, self._lapsed = lane.known.held_jobs(now.mono)
        self._skip = living | self._handled

    def run(self) -> None:
        """Take jobs, and log what becomes of those that cannot be taken any more."""
        if self._history is not None:
            self._own(self._history)
        if self._lane.is_due(self._mono):
            self._paused()
            self._late()
        self._log()

    @property
    def _full(self) -> bool:
        return self._asking.lone or self._limits.jobs <= 0 or self._found.full

    def _own(self, history: History) -> None:
        """Take jobs pending for this worker's name that no living delivery holds."""
        pending, lane = self._group.pending, self._known.priority
        consumer = self._group.consumers.get(self._worker)
        while consumer is not None and history.get(lane, 0) != ENDED and not self._full:
            page = pending.page(history.get(lane, 0), ids.MAX, DEAD_MAX, consumer.index)
            for job, time, _, count in page:
                if self._full:
                    return
                if job not in self._skip and not self._comes_later(job):
                    if not self._take(job, count, self._worker, time, True):
                        return
                history[lane] = job + 1
            if len(page) < DEAD_MAX:
                break
        if not self._full:
            history[lane] = ENDED

    def _comes_later(self, job: int) -> bool:
        """Whether the job waits until its lease is over, even for a worker of the same name: it was dropped, its
        delivery is beyond the time limit, or the lease was extended.
        """
        known = self._known
        deferral = known.extended.get(job)
        lent = deferral is not None and deferral.due > self._mono
        return lent or job in self._lapsed or job in known.dropped

    def _paused(self) -> None:
        known, pending = self._known, self._group.pending
        if not known.all_returned_known(self._group):
            known.find_paused(self._group, self._mono)
        heap, again = known.heap, []
        limits, claims, held = self._limits, self._found.claims, len(self._found.claims)
        free = limits.free
        while heap and heap[0][0] <= self._mono and not self._full and limits.free > 0:
            due, job = heappop(heap)
            deferral = known.paused.get(job)
            if deferral is None or deferral.due != due:
                continue
            if job in self._handled:  # given back just now: due at the next look
                again.append((due, job))
                continue
            row = pending.get(job)
            if row is None or row[1] != NOBODY:
                known.drop_notes(self._ctx, self._options, (job,))  # settled or redelivered
            elif self._take(job, row[2], b"", 0, self._was_lost(job, row[2])):
                limits.free = free - (len(claims) - held)
            else:
                again.append((due, job))
                if self._asking.enough:
                    break
        for item in again:
            heappush(heap, item)

    def _late(self) -> None:
        """Take jobs whose lease was not renewed in time, oldest first."""
        known, mono = self._known, self._mono
        period = self._options.lease
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
            deferral = known.extended.get(job)
            due = max(known.dropped.get(job, 0.0), 0.0 if deferral is None else deferral.due)
            if due > mono:
                look_at = min(look_at, due)
                continue
            row = pending.get(job)
            assert row is not None
            owner = owners[row[1]]
            name = b"" if owner is None else owner.name
            unseen = self._unseen(job, name, row[2])
            if unseen is None:
                suspect = self._is_suspect(job)
            else:
                suspect = self._was_lost(job, row[2] - 1)  # as before that delivery
            if not self._take(job, row[2], name, time, suspect, unseen):
                look_at = mono
                if self._asking.enough:
                    break
        if known.heap:
            look_at = min(look_at, known.heap[0][0])
        if len(known.dropped) > len(pending):  # others settled some
            for job in [job for job in list(known.dropped) if not pending.contains(job)]:
                known.dropped.pop(job, None)
        if known.lane_0 is None:
            look_at = min(look_at, known.chores_at)
        known.looks[period] = look_at

    def _unseen(self, job: int, worker: bytes, count: int) -> tuple[Delivery, JobEntry] | None:
        """The delivery of this number if no handler began with it, and the job's entry there."""
        if job not in self._lapsed:
            return None
        if self._unconfirmed is None:
            late = (d for d in self._known.deliveries() if not d.lives(self._mono))
            # An embedded worker's delivery lists jobs of a batch here. These count.
            lent = (d for d in late if d.process is not HOME)
            self._unconfirmed = {e[0]: (d, e) for d in lent for e in list(d.jobs)}
        found = self._unconfirmed.get(job)
        if found is None or found[0].worker != worker or found[1][2] != count:
            return None
        return found

    def _is_suspect(self, job: int) -> bool:
        """Whether a job whose lease is over was lost with its worker, and not given up by that."""
        if job in self._known.dropped:
            return False
        if self._overran is None:
            self._overran = self._known.overran(self._mono) if self._lapsed else set()
        return job not in self._overran

    def _was_lost(self, job: int, count: int) -> bool:
        return was_lost(self._ctx, self._known, self._options, job, count)

    def _is_culprit(self, job: int, count: int, most: int) -> bool:
        """Whether a suspect that was delivered as often as allowed ran alone the last time: the delivery before was
        lost too. Otherwise it was lost with others, and has one more delivery. One delivery at most means that the job
        never runs twice.
        """
        return count > most or most == 1 or self._was_lost(job, count - 1)

    def _may_take(self, suspect: bool) -> bool:
        asking = self._asking
        if not suspect:
            return not asking.only
        if self._found.claims or not asking.may_take():
            asking.pass_over()
            return False
        asking.lone = True
        return True

    def _take(
        self,
        job: int,
        count: int,
        worker: bytes,
        time: int,
        suspect: bool,
        unseen: tuple[Delivery, JobEntry] | None = None,
    ) -> bool:
        """Take a job, or end it. Returns False if it is passed over.

        unseen    the last delivery, if no handler saw it
        """
        row = self._stream.get(job)
        most = self._options.most(None if row is None else rows.retry_of(row))
        allowed = most + (bool(worker) and time < self._born_ms)
        expired = row is not None and rows.is_expired(row, self._ctx.now)
        doomed = expired
        if unseen is not None:
            count -= 1
        elif count >= allowed and (not suspect or self._is_culprit(job, count, most)):
            doomed = True
        if row is not None and not doomed and not self._may_take(suspect):
            return False
        self._skip.add(job)
        self._handled.add(job)
        self._known.dropped.pop(job, None)
        if row is None:
            self._gone.append(job)
            return True
        if unseen is not None:
            self._found.unseen.append(unseen)
        elif worker:
            at = rows.moment(self._ctx.now)
            name = rows.shown(worker)
            self._abandoned[job] = Failure(rows.text(job), at, name, count, ABANDONED, "")
        if doomed:
            self._bury(job, row, count, expired)
        else:
            self._found.claim(job, row, count + 1)
        return True

    def _bury(self, job: int, row: EntryRow, count: int, expired: bool) -> None:
        self._doomed.append(job)
        earlier = failures(self._known, self._ctx, self._options, job)
        if job in self._abandoned:
            earlier.append(self._abandoned[job])
        reason = rows.EXPIRED if expired else given_up(count, ": never finished")
        self._found.bury(job, row, count, reason, earlier)

    def _log(self) -> None:
        """Log failures that nobody has recorded, and the end of jobs without an entry."""
        ctx, options, known = self._ctx, self._options, self._known
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
                known.remember_failure(job, entry)
        known.drop_notes(ctx, options, [*self._found.claims, *self._doomed, *self._gone])
        for job in (*self._doomed, *self._gone):
            known.failed.pop(job, None)
        if self._gone:
            if known.limited:
                known.freed(self._gone)
            ctx.effects += let_go(ctx, options, self._stream, self._gone)
            ctx.effects.append(
                (XACK, ctx.db, options.key, options.group_key, pack(sorted(self._gone)))
            )
        self._found.done += self._doomed
