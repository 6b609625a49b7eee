"""Fetch: which jobs a worker gets next. One decision under the store's lock, made again when a parked worker wakes.

Lanes: the highest priority first. A delivery has jobs of one lane. One fetch in FAIR that finds jobs in several lanes
begins with the lane whose next job was put first, so that no lane starves.

Order in a lane: jobs that this worker's name held when its earlier life ended; jobs whose pause is over, and abandoned
jobs; jobs whose key has a place again; new jobs (selection.py). A job that was delivered too often becomes a dead job
instead. Gathered acknowledgements are written in the same unit.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.engine.api import Context, EntryRow, next_one, reading
from tidelog.engine.reply import Park, Reply
from tidelog.jobs import rows
from tidelog.jobs.options import Options
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.deaths import tell
from tidelog.jobs.work.ends import NOTHING_ENDS, Ends, log_all_leftovers
from tidelog.jobs.work.keyed import Keyed
from tidelog.jobs.work.known import HOME, Delivery, Known, Process
from tidelog.jobs.work.limits import LOOK_SECONDS, Limits
from tidelog.jobs.work.look import Look
from tidelog.jobs.work.new import take_new
from tidelog.jobs.work.retention import sweep_dead
from tidelog.jobs.work.selection import DEAD_MAX, ENDED, Decision, History, LaneNow, Selection
from tidelog.store.errors import StoreClosed

FAIR: Final = 10


class Outcome(Enum):
    """The result of a fetch. One that waits returns a Park, and has a result when it is decided again."""

    NEXT = "one new job and nothing else"
    DELIVERED = "jobs"
    NOTHING = "no job, or none in time"
    AGAIN = "nothing yet; ask once more"
    NO_GROUP = "a lane of the queue, or its group, is missing"


NEXT: Final = Outcome.NEXT
DELIVERED: Final = Outcome.DELIVERED
NOTHING: Final = Outcome.NOTHING
AGAIN: Final = Outcome.AGAIN
NO_GROUP: Final = Outcome.NO_GROUP


def closing() -> StoreClosed:
    """The error for a worker that asks for a job while the store is being closed."""
    return StoreClosed("the store is being closed and delivers no more jobs")


class Fetch:
    """One worker's request, and afterwards the delivery it got. Can be made again once it is answered.

    known       of lane 0, as are the options
    batch       how many jobs at most
    timeout_ms  how long to wait for the first one: 0 = for ever, None = not at all
    history     where the worker is in its own history, None after the end
    time_limit  seconds for which its leases are renewed at most, None = without limit
    unsure      this process cannot tell whether handlers began with the jobs that an earlier one gave out; see Look
    process     the process of the worker (alone.py)

    Set for each request:

    delivery    holds the jobs; empty before. Removed from the request afterwards: only the jobs keep it alive
    before      the previous delivery, whose gathered acknowledgements are written too
    """

    __slots__ = (
        *("known", "options", "worker", "batch", "timeout_ms", "history", "before", "delivery"),
        *("time_limit", "unsure", "process", "_ends", "_dying", "_dead", "_single"),
    )

    def __init__(
        self,
        known: Known,
        options: Options,
        worker: bytes,
        batch: int,
        timeout_ms: int | None,
        history: History | None,
        time_limit: float | None,
        unsure: bool = False,
        process: Process = HOME,
    ) -> None:
        self.unsure, self.process = unsure, process
        self.known, self.options, self.worker = known, options, worker
        self.batch, self.timeout_ms, self.history = batch, timeout_ms, history
        self.time_limit = time_limit
        self.delivery: Delivery
        self.before: Delivery | None = None
        # These two are of the last decision, until it is known whether its unit is in the log.
        self._ends: Ends | None = None
        self._dying: list[EntryRow] = []
        self._dead: list[EntryRow] = []  # dead jobs that are in the log, and not told yet
        self._single = batch == 1 and not options.limited
        if options.limited:
            known.limit()

    def landed(self, reply: Reply) -> Outcome:
        """The outcome for a reply whose unit is in the log. Not under the lock."""
        if self._ends is not None or self._dying:
            self.written()
        if self._dead:
            self.tell_deaths()
        # The store answers a worker whose time is up as it answers any other blocked call.
        return reply if isinstance(reply, Outcome) else NOTHING

    def written(self) -> None:
        """The unit of the last decision is in the log."""
        ends = self._ends
        if ends is not None:
            ends.written(self.known)
            self._ends = None
        if self._dying:
            self._dead += self._dying
            self._dying = []

    def tell_deaths(self) -> None:
        """Log the jobs that became dead jobs. Not under the lock."""
        if self._dead:
            dead, self._dead = self._dead, []
            tell(self.options, dead)
            sweep_dead(self.known.core, self.known.db, self.options)

    def failed(self) -> None:
        """The last decision failed, or its outcome is unknown."""
        ends, self._ends = self._ends, None
        if ends is not None:
            ends.failed()
        self._dying = []

    def __call__(self, ctx: Context) -> Reply:
        """Decide: an Outcome, or a Park."""
        known, options = self.known, self.options
        if known.closing:
            raise closing()
        if self._ends is not None or self._dying:
            self.written()
        stream = ctx.stream(options.key)
        group = None if stream is None else stream.groups.get(options.group_key)
        if stream is None or group is None:
            return NO_GROUP
        if options.concurrency_per_key is not None and known.keys is None:
            known.limit_keys()
        if known.number != stream.number or known.group is not group:
            known.fresh(ctx, options, stream, group)
        mono = known.monotonic()
        if (
            self._single
            and self.history is None
            and mono < known.looks.get(options.lease, 0.0)
            and known.plain
            and self.before is None
            and not known.leftovers
            and not known.alone.turns
        ):
            # No older job can be due, as in nearly every fetch with batch=1. This branch does the same as the code
            # below, but faster.
            new = next_one(ctx, options.key, stream, group, self.worker)
            if new is not None and (len(new[1]) == 2 or not rows.is_expired(new[1], ctx.now)):
                job, row = new
                delivery = self.delivery
                delivery.open[job] = 1
                delivery.jobs = [(job, row, 1)]
                delivery.renewed = mono
                if self.time_limit is not None:
                    delivery.until = mono + self.time_limit
                return NEXT
            if new is not None:
                ctx.effects.pop()  # the job is expired: it is not delivered
        for _ in range(DEAD_MAX):
            reply = self._decide(ctx, LaneNow(known, options, stream, group), mono)
            if reply is not None:
                return reply
            effects, ctx.effects = ctx.effects, []
            known.core.landing.land(effects)
            self.written()
        return AGAIN

    def _decide(self, ctx: Context, lane_0: LaneNow, mono: float) -> Outcome | Park | None:
        """Decide the general way. None: all jobs found were expired. When that is in the log, decide once more."""
        known, options = self.known, self.options
        if mono >= known.looks.get(options.lease, 0.0):
            known.do_chores(ctx, options, mono)
        lanes = self._lanes(ctx, lane_0) if known.lanes else [lane_0]
        if lanes is None:
            return NO_GROUP
        ends = NOTHING_ENDS
        if self.before is not None or known.leftovers or not known.plain:
            ends = self._ends = self._end_others(ctx, lanes, mono)
        limits = Limits(self.batch)
        if options.limited:
            limits.heed(ctx, options, [lane.group for lane in lanes], len(ends.held))
        asker = self.worker, self.history, self.unsure, self.process
        now = Decision(ctx, mono, lanes, *asker, limits, ends)
        if known.alone.turns:
            now.ask(known, options)
        several = len(lanes) > 1 and not limits.stop_all and self._in_turn(lanes, mono)
        halted = known.halted and known.is_halted(ctx.database.keys)
        found = None if halted else self._search(now)
        if ends.lane is not None:
            ends.log_rest(ctx)
        if self.history is not None:
            self._end_history(self.history, lanes)
        if found is None:
            return self._without(now)
        self._dying = found.dead
        if found.unseen:
            self._ends = self._ends or Ends()
            self._ends.take_unseen(found.unseen)
        if not found.got:
            return None if found.dead else AGAIN
        self._deliver(now, found)
        known.turns += several
        if limits.rate is not None:
            limits.rate.log(ctx, len(self.delivery.jobs))
        return DELIVERED

    def _end_others(self, ctx: Context, lanes: list[LaneNow], mono: float) -> Ends:
        """End in this unit: finished jobs of the previous delivery, and what ended deliveries left behind."""
        known, before = self.known, self.before
        ends = Ends()
        if before is not None and before.finished:
            ends.take_finished(before, lanes)
        keys = known.keys
        if keys is not None:
            # Free the keys of jobs that end in this unit, or that another client has ended.
            keys.limit(self.options.concurrency_per_key)
            if ends.lane is not None:
                keys.ended(ends.lane.known.priority, ends.held)
            if mono >= keys.look_at:
                keys.look_at = mono + LOOK_SECONDS
                for lane in lanes:
                    keys.look(lane.known.priority, lane.group)
        if known.leftovers or known.lanes:
            ends.left = log_all_leftovers(ctx, known, self.options, mono)
        return ends

    def _lanes(self, ctx: Context, lane_0: LaneNow) -> list[LaneNow] | None:
        """The lanes that exist, the highest first. None if the group is missing in one of them."""
        found: list[LaneNow] = []
        for priority, known in self.known.lanes.items():
            options = self.options.lane(priority)
            stream = stream_at(ctx, options.key)
            if stream is None:
                continue
            group = stream.groups.get(options.group_key)
            if group is None:
                return None
            if known.number != stream.number or known.group is not group:
                known.fresh(ctx, options, stream, group)
            found.append(LaneNow(known, options, stream, group))
        return [*found, lane_0]

    def _in_turn(self, lanes: list[LaneNow], mono: float) -> bool:
        """Whether several lanes have jobs. If it is their turn, the lane whose next job was put first becomes the first
        one.
        """
        ready = [
            lane
            for lane in lanes
            if lane.has_first() or len(lane.group.pending) and lane.is_due(mono)
        ]
        if len(ready) < 2:
            return False
        if self.known.turns % FAIR == FAIR - 1:
            first = min(ready, key=lambda lane: _next_job(lane, mono))
            lanes.remove(first)
            lanes.insert(0, first)
        return True

    def _search(self, now: Decision) -> Selection | None:
        """The selection of the first lane in which there is something to do; None if there is no such lane."""
        if now.asking is not None and now.asking.nothing:
            return None
        for lane in now.lanes:
            found = self._select(now, lane)
            if found is not None and (found.got or found.dead or found.passed):
                return found
        return None

    def _select(self, now: Decision, lane: LaneNow) -> Selection | None:
        """Select jobs from the sources of one lane, and log the selection. None: it has nothing to select from."""
        ends, keys, keyed = now.ends, lane.known.keys, None
        stream, looks_back = lane.stream, now.history is not None or lane.is_due(now.mono)
        has_new = stream.length and stream.last_live_id() > lane.group.last_id
        if not (has_new or looks_back or keys is not None or ends.lane is lane):
            return None
        found = Selection(lane, ends.take_done() if ends.lane is lane else [], now.limits)
        if looks_back:
            Look(now, found, now.ask(self.known, self.options)).run()
        if keys is not None:
            keyed = Keyed(now, found, keys)
            keyed.take_aside(now.left)
        if has_new and (left := now.left):
            take_new(now, found, keyed, left)
        found.log(now)
        return found

    def _deliver(self, now: Decision, found: Selection) -> None:
        """Give the selected jobs to the delivery."""
        delivery, known = self.delivery, found.lane.known
        if delivery.known is not known:
            delivery.enter(known, found.lane.options)
        found.got.reverse()
        if found.claims:
            found.opened.update(found.claims)
        delivery.open, delivery.jobs = found.opened, found.got
        delivery.renewed = now.mono
        if self.time_limit is not None:
            delivery.until = now.mono + self.time_limit
        if now.asking is not None and now.asking.lone:
            known.alone.took(delivery, next(iter(found.claims)), now.mono)

    def _end_history(self, history: History, lanes: list[LaneNow]) -> None:
        """Note whether the worker has all jobs of its history."""
        known = self.known
        if any(history.get(lane.known.priority) != ENDED for lane in lanes):
            return
        if known.begun.get(self.worker) is history:
            del known.begun[self.worker]
        self.history = None
        known.returned.add(self.worker)

    def _without(self, now: Decision) -> Outcome | Park:
        """There is no job for the worker: wait, unless it does not."""
        known, asking, mono = self.known, now.asking, now.mono
        if asking is not None and not known.halted and asking.cleared_in_vain():
            return AGAIN
        if self.timeout_ms is None:
            # This unit itself may have returned jobs to the queue. Only a new request can get them, so AGAIN asks the
            # caller to make one.
            return AGAIN if any(leftover.unseen for leftover in now.ends.left) else NOTHING
        period = self.options.lease
        look_at = min(lane.known.looks.get(period, mono) for lane in now.lanes)
        look_at = min(look_at, mono + period)
        if asking is not None and asking.waits():
            look_at = mono + LOOK_SECONDS  # a suspect that is due, or may be lost without a word
        if known.keys is not None and known.keys.is_waiting():
            # another client's acknowledgement wakes nobody
            look_at = min(look_at, mono + LOOK_SECONDS)
        if known.halted:
            look_at = min(mono + LOOK_SECONDS, known.chores_at)  # ticks and delays go on
        elif now.limits.stop_all:
            # nothing can be delivered sooner, though older jobs may be due
            look_at = mono + now.limits.wait()
        return Park([known.place], [b"XREADGROUP"], self.timeout_ms, None, look_at)


def _next_job(lane: LaneNow, mono: float) -> int:
    """The ID of the job of a lane that was put first, of those that may be delivered now."""
    pending, after = lane.group.pending, lane.group.last_id
    new = reading.after(lane.stream, after, 1).ids()
    keys = lane.known.keys
    if keys is not None and (aside := keys.first(lane.known.priority)) is not None:
        new = [*new, aside]
    due = (
        [pending.first()]
        if len(pending) and mono >= min(lane.known.looks.values(), default=0.0)
        else []
    )
    return min((*new, *due))
