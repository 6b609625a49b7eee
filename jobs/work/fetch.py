"""Fetch: which jobs a worker gets next. One decision under the store's lock, made again when a parked worker wakes.

Lanes: the highest priority first. A delivery has jobs of one lane. One fetch in FAIR that finds jobs in several lanes
begins with the lane whose next job was put first, so that no lane starves.

Order in a lane: jobs that this worker's name held when its earlier life ended; jobs whose pause is over, and abandoned
jobs; new jobs. A job that was delivered too often becomes a dead job instead. Gathered acknowledgements are written in
the same unit.
"""

from __future__ import annotations

import math
from itertools import chain, repeat
from typing import Any, Final

from tidelog.engine.api import (
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
)
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.jobs import rows
from tidelog.jobs.options import Options
from tidelog.jobs.streams import stream_at
from tidelog.jobs.units import UNIT_BYTES
from tidelog.jobs.work.alone import Asking
from tidelog.jobs.work.deaths import tell
from tidelog.jobs.work.ends import log_all_leftovers, log_finished
from tidelog.jobs.work.freeing import free_unseen
from tidelog.jobs.work.keyed import Keyed
from tidelog.jobs.work.keys import Keys
from tidelog.jobs.work.limits import LOOK_SECONDS, Delivered, free_places
from tidelog.jobs.work.look import ENDED, LOOK_MAX, History, Look, Place
from tidelog.jobs.work.shared import HOME, Delivery, Leftover, Process, Shared
from tidelog.store.errors import StoreClosed

FAIR: Final = 10

DELIVERED: Final = b"delivered"
NEXT: Final = b"next"  # delivered: one new job and nothing else
NO_GROUP: Final = b"no group"  # a lane of the queue, or its group, is missing
AGAIN: Final = b"again"  # nothing yet; ask once more
MORE: Final = b"more"  # jobs only became dead; look further


def closing() -> StoreClosed:
    """The error for a worker that asks for a job while the store is being closed."""
    return StoreClosed("the store is being closed and delivers no more jobs")


class Fetch:
    """One worker's request, and afterwards the delivery it got. Can be made again once it is answered.

    shared      of lane 0, as are the options
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
        *("shared", "options", "worker", "batch", "timeout_ms", "history", "before", "delivery"),
        *("time_limit", "unsure", "process", "_writing", "_held", "_left", "_single", "_dying"),
        *("_dead", "_asking"),
    )

    def __init__(
        self,
        shared: Shared,
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
        self.shared, self.options, self.worker = shared, options, worker
        self.batch, self.timeout_ms, self.history = batch, timeout_ms, history
        self.time_limit = time_limit
        self.delivery: Delivery
        self.before: Delivery | None = None
        self._asking: Asking | None = None
        self._writing: list[int] = []
        self._held: list[int] = []
        self._left: list[Leftover] = []
        self._dying: list[EntryRow] = []  # dead jobs of the last decision
        self._dead: list[EntryRow] = []  # those that are in the log, and not told yet
        self._single = batch == 1 and not options.limited
        if options.limited:
            shared.limit()

    def written(self) -> None:
        """The acknowledgements that the last decision included are in the log."""
        if self._writing:
            assert self.before is not None
            self.before.written(self._writing, self._held)
            self._writing = []
        if self._left:
            self.shared.dealt_with(self._left)
            self._left = []
        if self._dying:
            self._dead += self._dying
            self._dying = []

    def tell_deaths(self) -> None:
        """Log the jobs that became dead jobs. Not under the lock."""
        if self._dead:
            dead, self._dead = self._dead, []
            tell(self.options, dead)

    def failed(self) -> None:
        """The last decision failed or its outcome is unknown: its acknowledgements have to be written (again)."""
        if self._writing:
            assert self.before is not None
            self.before.finished.extendleft(reversed(self._writing))
            self._writing = []
        self._left, self._dying = [], []
        self._asking = None

    def __call__(self, ctx: Context) -> Reply:
        shared, options = self.shared, self.options
        if shared.closing:
            raise closing()
        if self._writing or self._left or self._dying:
            self.written()
        stream = ctx.stream(options.key)
        group = None if stream is None else stream.groups.get(options.group_key)
        if stream is None or group is None:
            return NO_GROUP
        if options.concurrency_per_key is not None and shared.keys is None:
            shared.limit_keys()
        if shared.number != stream.number or shared.group is not group:
            shared.fresh(ctx, options, stream, group)
        mono = shared.monotonic()
        look = self.history is not None or mono >= shared.looks.get(options.retry_after, 0.0)
        delivery = self.delivery
        if (
            self._single
            and not look
            and shared.plain
            and self.before is None
            and not shared.leftovers
            and not shared.alone.turns
        ):
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
            self._asking = None  # it refers to deliveries
            if reply is not MORE:
                return reply
            effects, ctx.effects = ctx.effects, []
            shared.core.landing.land(effects)
            self.written()
        return AGAIN

    def _decide(self, ctx: Context, stream: Stream, group: Group, mono: float) -> Reply:
        """Decide the general way. MORE: all jobs found were expired. When that is in the log, decide once more."""
        shared, options = self.shared, self.options
        period = options.retry_after
        if mono >= shared.looks.get(period, 0.0):
            self._chores(ctx, mono)
        lane_0 = Place(shared, options, stream, group)
        lanes = self._lanes(ctx, lane_0) if shared.lanes else [lane_0]
        if lanes is None:
            return NO_GROUP
        acked_in = self._take_finished(lanes)
        if shared.keys is not None:
            self._look_at_keys(shared.keys, lanes, acked_in, mono)
        if shared.leftovers or shared.lanes:
            self._left = log_all_leftovers(ctx, shared, options, mono)
        limit, free = self.batch, math.inf
        rate: Delivered | None = None
        if options.limited:
            groups = [lane.group for lane in lanes]
            free = free_places(groups, options.concurrency, len(self._held))
            if options.rate is not None:
                rate = Delivered(ctx, options.rate_key, options.rate)
                limit = min(limit, rate.left)
        self._asking = self._ask(ctx, lanes, mono) if shared.alone.turns else None
        waits = self._asking is not None and self._asking.nothing
        several = len(lanes) > 1 and limit > 0 and free > 0 and self._in_turn(lanes, mono)
        reply: Reply = None
        for lane in () if waits else lanes:
            done = self._held.copy() if lane is acked_in else []
            reply = self._search(ctx, lane, lanes, mono, limit, free, done)
            if lane is acked_in:
                acked_in = None
            if reply is not None:
                break
        if acked_in is not None and self._held:
            log_finished(acked_in.shared, acked_in.options, ctx, acked_in.stream, self._held)
        if self.history is not None and all(
            self.history.get(lane.shared.priority) == ENDED for lane in lanes
        ):
            if shared.begun.get(self.worker) is self.history:
                del shared.begun[self.worker]
            self.history = None
            shared.returned.add(self.worker)
        if reply is DELIVERED:
            shared.turns += several
            if rate is not None:
                rate.log(ctx, len(self.delivery.jobs))
        if reply is not None:
            return reply
        asking = self._asking
        if asking is not None and asking.cleared_in_vain():
            return AGAIN
        if self.timeout_ms is None:
            # This unit itself may have returned jobs to the queue. Only a new request can get them, so AGAIN asks the
            # caller to make one.
            return AGAIN if any(leftover.unseen for leftover in self._left) else NULL_ARRAY
        look_at = min((lane.shared.looks.get(period, mono) for lane in lanes))
        look_at = min(look_at, mono + period)
        if asking is not None and asking.waits():
            look_at = mono + LOOK_SECONDS  # a suspect that is due, or may be lost without a word
        if shared.keys is not None and shared.keys.is_waiting():
            look_at = min(look_at, mono + LOOK_SECONDS)  # as below
        if limit == 0 or free <= 0:
            # Nothing can be delivered sooner, though older jobs may be due. Nobody need end a job for a rate to allow
            # the next one, and another client's acknowledgement wakes nobody.
            wait = LOOK_SECONDS if rate is None or limit else rate.wait_ms / 1000
            look_at = mono + max(0.001, min(wait, LOOK_SECONDS))
        return Park([shared.place], [b"XREADGROUP"], self.timeout_ms, None, look_at)

    def _ask(self, ctx: Context, lanes: list[Place], mono: float) -> Asking:
        """Ask what the worker's process may get."""
        alone: Any = self.shared.alone
        return Asking(
            *(ctx, alone, self.shared, self.options, self.process, mono),
            (self.before, self._writing),
            lambda: any(_has_others(lane, mono) for lane in lanes),
        )

    def _chores(self, ctx: Context, mono: float) -> None:
        """Put the jobs that are due, each as a unit of its own, and look for lanes."""
        shared = self.shared
        # While higher lanes have jobs, the look at lane 0 is due at each fetch. The chores are not.
        if shared.lanes and mono < shared.chores_at:
            return
        core = shared.core
        # Ticks first: they put jobs that are due now.
        ticks_in = shared.ticks.advance(core, ctx)
        shared.chores_at = mono + min(ticks_in, shared.later.advance(core, ctx, self.options))
        shared.find_lanes(ctx.database.keys)
        if shared.lanes:
            shared.chores_at = min(shared.chores_at, mono + self.options.retry_after)

    def _lanes(self, ctx: Context, lane_0: Place) -> list[Place] | None:
        """The lanes that exist, the highest first. None if the group is missing in one of them."""
        found: list[Place] = []
        for priority, shared in self.shared.lanes.items():
            options = self.options.lane(priority)
            stream = stream_at(ctx, options.key)
            if stream is None:
                continue
            group = stream.groups.get(options.group_key)
            if group is None:
                return None
            shared.fresh(ctx, options, stream, group)
            found.append(Place(shared, options, stream, group))
        return [*found, lane_0]

    def _look_at_keys(
        self, keys: Keys, lanes: list[Place], acked_in: Place | None, mono: float
    ) -> None:
        """Free the keys of jobs that end in this unit, or that another client has ended."""
        most = self.options.concurrency_per_key
        keys.limit(math.inf if most is None else most)
        if acked_in is not None:
            keys.ended(acked_in.shared.priority, self._held)
        if mono >= keys.look_at:
            keys.look_at = mono + LOOK_SECONDS
            for lane in lanes:
                keys.look(lane.shared.priority, lane.group)

    def _take_finished(self, lanes: list[Place]) -> Place | None:
        """Take the finished jobs of the previous delivery, to acknowledge them in this unit. Returns their lane."""
        before = self.before
        if before is None or not before.finished:
            self._held = []
            return None
        self._writing = before.take_finished()
        self._held = []
        for lane in lanes:
            if lane.shared is before.shared:
                self._held = before.still_held(lane.group, self._writing)
                return lane
        return None  # its stream was deleted

    def _in_turn(self, lanes: list[Place], mono: float) -> bool:
        """Whether several lanes have jobs. If it is their turn, the lane whose next job was put first becomes the first
        one.
        """
        ready = [lane for lane in lanes if self._is_ready(lane, mono)]
        if len(ready) < 2:
            return False
        if self.shared.turns % FAIR == FAIR - 1:
            first = min(ready, key=lambda lane: _next_job(lane, mono))
            lanes.remove(first)
            lanes.insert(0, first)
        return True

    def _is_ready(self, lane: Place, mono: float) -> bool:
        """Whether a lane may have jobs: new ones, or pending ones that a look would find."""
        stream, group, shared = lane.stream, lane.group, lane.shared
        if stream.length and stream.last_live_id() > group.last_id:
            return True
        if shared.keys is not None and shared.keys.first(shared.priority) is not None:
            return True
        return len(group.pending) > 0 and mono >= shared.looks.get(self.options.retry_after, 0.0)

    def _search(
        self,
        ctx: Context,
        lane: Place,
        lanes: list[Place],
        mono: float,
        limit: int,
        free: float,
        done: list[int],
    ) -> Reply:
        """Look for jobs in one lane, and log what is found. `done`: jobs of the lane that end in this unit anyway.

        Returns DELIVERED, MORE, or None: there is nothing.
        """
        shared, options, stream, group = lane.shared, lane.options, lane.stream, lane.group
        delivery, period = self.delivery, self.options.retry_after
        timely = mono >= shared.looks.get(period, 0.0)
        claims: dict[int, int] = {}
        got: list[Any] = []
        dead: list[EntryRow] = []
        if self.history is not None or timely:
            handled = set(done)
            for leftover in self._left:
                if leftover.shared is shared:
                    handled.update(leftover.finished)
                    handled.update(job for job, _, _ in leftover.unseen)
            self._asking = self._asking or self._ask(ctx, lanes, mono)
            old = Look(
                *(ctx, lane, self.worker, self.history, mono, handled, limit, free, self.unsure),
                self._asking,
            )
            old.run()
            free -= old.resumed
            claims, got = old.claims, old.got
            dead = old.dead()
            done += old.log()
            if timely and shared is self.shared:
                shared.looks[period] = min(shared.looks[period], shared.chores_at)
        left = int(min(limit - len(claims), max(0, free)))
        asking = self._asking
        if asking is not None and (asking.lone or asking.only):
            left = 0
        opened: dict[int, int] = {}
        passed = False
        keyed: Keyed | None = None
        if shared.keys is not None:
            keyed = Keyed(ctx, lane, self.worker, shared.keys, self._left)
            keyed.take_aside(left)
            left -= len(keyed.claims)
        fresh: Entries | None = None
        if left and stream.length and stream.last_live_id() > group.last_id:
            fresh = reading.after(stream, group.last_id, left)
            if keyed is not None and not all(part.lacks(rows.KEY) for part in fresh.parts):
                keyed.take_new(left, fresh)
                fresh = None
        if keyed is not None:
            claims.update(keyed.claims)
            got += keyed.got
            dead += keyed.dead
            done += keyed.done
            opened, passed = keyed.opened, bool(keyed.passed)
        if fresh is not None:
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
                opened = dict.fromkeys([job for job, _, _ in fit], 1)
                got += fit
            else:
                found = fresh.ids()
                opened = dict.fromkeys(found, 1)
                whole: Any = chain.from_iterable(part.rows() for part in fresh.parts)
                got += zip(found, whole, repeat(1))
        if got and delivery.shared is not shared:
            delivery.enter(shared, options)
        if opened:
            delivery.open = opened
        if claims:
            delivery.open.update(claims)
            log_claim(
                ctx, options.key, options.group_key, self.worker, claims, ctx.now, ctx.now, ()
            )
            if asking is not None and asking.lone:
                shared.alone.took(delivery, next(iter(claims)), mono)
        if dead:
            stream_at(ctx, options.dead_key)
            decide_xadd_many(ctx, options.dead_key, dead)
            ctx.effects += free_unseen(ctx, options, stream, dead)
            self._dying += dead
        if done:
            log_finished(shared, options, ctx, stream, done)
        if not got:
            return MORE if dead else AGAIN if passed else None
        got.reverse()
        delivery.jobs = got
        delivery.renewed = mono
        if self.time_limit is not None:
            delivery.until = mono + self.time_limit
        return DELIVERED


def _has_others(lane: Place, mono: float) -> bool:
    """Whether a lane has new jobs, or retries that are due."""
    stream, group, shared = lane.stream, lane.group, lane.shared
    if stream.length and stream.last_live_id() > group.last_id:
        return True
    if shared.keys is not None and shared.keys.first(shared.priority) is not None:
        return True
    return bool(shared.heap) and shared.heap[0][0] <= mono


def _next_job(lane: Place, mono: float) -> int:
    """The ID of the job of a lane that was put first, of those that may be delivered now."""
    pending, after = lane.group.pending, lane.group.last_id
    new = reading.after(lane.stream, after, 1).ids()
    keys = lane.shared.keys
    if keys is not None and (aside := keys.first(lane.shared.priority)) is not None:
        new = [*new, aside]
    due = (
        [pending.first()]
        if len(pending) and mono >= min(lane.shared.looks.values(), default=0.0)
        else []
    )
    return min((*new, *due))


def _expired(fresh: Entries, now: int) -> dict[int, EntryRow]:
    """Those of the new jobs that are too old to be delivered."""
    return {job: row for job, row in fresh if row is not None and rows.is_expired(row, now)}


def _too_much(late: dict[int, EntryRow]) -> bool:
    """Whether one unit should not make so many jobs dead jobs."""
    return len(late) > LOOK_MAX or sum(sum(map(len, row)) for row in late.values()) > UNIT_BYTES
