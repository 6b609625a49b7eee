"""Known: the common knowledge of all workers of one queue and group in this process.

An embedded store has one writer, so all its workers live in this process, and no clock is needed to tell which are
alive: a delivery lives as long as its object, within its time limit. All waiting uses the monotonic clock. The wall
clock only tells the age of what an earlier process left behind. So a clock that jumps takes no job from a living worker
and shortens no pause.

A queue with priorities has a `Known` for each lane (jobs/lanes.py). That of lane 0 knows the others.

All that was read from the store (pauses.py, keys.py) is read again after the store's memory was rebuilt, when the key
has another stream, and after a unit that failed.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from tidelog.engine.api import Context, EntryRow, Group, Keyspace, State, Stream
from tidelog.engine.idlist import pack
from tidelog.jobs.cancels import EndBlock
from tidelog.jobs.lanes import HIGHEST_FIRST, totals
from tidelog.jobs.options import Options
from tidelog.jobs.rows import text
from tidelog.jobs.streams import among_held
from tidelog.jobs.work.keys import Keys
from tidelog.jobs.work.later import Later
from tidelog.jobs.work.pauses import Pauses
from tidelog.jobs.work.pausing import paused_since
from tidelog.jobs.work.results import Results
from tidelog.jobs.work.ticks import Ticks
from tidelog.store.commit.callers import Caller, Holder
from tidelog.store.commit.core import Core

# longest period over which `put_per_second` and `done_per_second` are measured
RATE_SECONDS: Final = 60.0
FEW: Final = 8  # up to this many jobs are looked up one by one
JobEntry = tuple[int, EntryRow, int]  # ID, row, deliveries
Process = object  # by what the consumers of one process are told from those of others
HOME: Final = b""  # the process that has the store open

log = logging.getLogger("tidelog.queue")


class Delivery:
    """Jobs that were delivered to one worker together. While it lives, at most until `until`, their leases are renewed.

    A delivery of a single job is reused when the job is done (`Workplace.spare`). Meanwhile it stays in `Known.living`,
    with nothing open.

    open        jobs neither settled nor dropped: ID -> deliveries. Worker and deliveries fence them against later ones
    jobs        jobs not yet handed to the worker, the first one last
    finished    jobs that are done but not acknowledged yet; they are written together
    gathers     whether acknowledgements are gathered like this
    until       end of the time limit, monotonic seconds; None = no limit
    renewed     when the leases were last renewed
    holder      who holds its jobs, 0 = nobody yet
    hands       for a batch: job -> who holds it, if that is or was not `holder`
    process     the process of its worker (alone.py)
    beats       `until` is the time at which a missing renewal ends it, not that of its time limit
    blocks      for tasks: job -> who is in its block, which a cancel ends by `end_block`
    """

    __slots__ = (
        *("known", "options", "worker", "open", "jobs", "finished", "gathers", "until", "renewed"),
        *("holder", "hands", "process", "beats", "blocks", "end_block", "__weakref__"),
    )

    end_block: EndBlock

    def __init__(
        self,
        known: Known,
        options: Options,
        worker: bytes,
        gathers: bool,
        process: Process = HOME,
    ) -> None:
        self.jobs: list[JobEntry] = []
        self.finished: deque[int] = deque()
        self.open: dict[int, int] = {}
        self.options = options
        self.worker = worker
        self.gathers = gathers
        self.process, self.beats = process, False
        self.until: float | None = None
        self.renewed = 0.0
        self.holder: Holder = 0
        self.hands: dict[int, Holder] = {}
        self.blocks: dict[int, Any] | None = None
        self.known = known  # set it last: once it is set, `__del__` cleans up
        known.living[id(self)] = weakref.ref(self)

    def enter(self, known: Known, options: Options) -> None:
        """It is to hold jobs of this lane. It holds none yet."""
        before = self.known
        known.living[id(self)] = weakref.ref(self)
        self.options, self.known = options, known
        before.living.pop(id(self), None)

    def lives(self, mono: float) -> bool:
        """Whether its leases are renewed, that is, the time limit is not over."""
        return self.until is None or mono < self.until

    def taken(self, job: int, holder: Holder) -> None:
        """Note that `holder`, which is not `self.holder`, holds a job."""
        if self.gathers and self.holder:
            self.hands[job] = holder
        else:
            self.holder = holder

    def take_unseen(self) -> list[JobEntry]:
        """Take the jobs that were not handed to the worker. The worker's thread may take jobs at the same time; each
        job goes to exactly one of the two.
        """
        taken: list[JobEntry] = []
        try:
            taken.extend(map(list.pop, repeat(self.jobs, len(self.jobs))))
        except IndexError:
            pass  # the jobs taken before stay taken
        return taken

    def take_finished(self) -> list[int]:
        """Take the finished jobs, to write them. The worker may add to them, and another thread take some, at the same
        time: the beat does so while a consumer is closed.
        """
        taken: list[int] = []
        try:
            taken.extend(map(deque.popleft, repeat(self.finished, len(self.finished))))
        except IndexError:
            pass  # the jobs taken before stay taken
        return taken

    def still_held(self, group: Group, jobs: Sequence[int]) -> list[int]:
        """[lock] Those of its open jobs that were not delivered to another worker."""
        counts = self.open
        if len(jobs) > FEW and set(map(counts.get, jobs)) == {1}:
            # If every job was delivered once, as in most batches, they are nearly always one run of pending entries,
            # which one look-up can check.
            consumer = group.consumers.get(self.worker)
            found = sorted(jobs)
            if consumer and group.pending.are_held(pack(found), consumer.index, 1):
                return found
        return among_held(group, self.worker, [(job, counts.get(job, 0)) for job in jobs])

    def written(self, jobs: Collection[int], held: Collection[int]) -> None:
        """These finished jobs are acknowledged in the log; those not in `held` were lost before."""
        if self.open.keys() <= set(jobs):
            self.open.clear()
        else:
            for job in jobs:
                self.settled(job)
        if len(held) < len(jobs):
            name = self.options.name
            lost = ", ".join(map(text, sorted({*jobs} - {*held})))
            log.warning(
                "queue %s: jobs were done too late, after another worker got or settled them: %s",
                name,
                lost,
            )

    def settled(self, job: int) -> None:
        """Forget a job: it is no longer this worker's."""
        self.open.pop(job, None)

    def drop(self, job: int) -> None:
        """The worker has dropped this job, and may hold others of the delivery. From any place: `__del__` calls it."""
        count = self.open.get(job)
        # An interrupt may strike when the job is noted as finished, before its object knows that.
        if count is not None and job not in self.finished:
            self.known.leftovers.append(Leftover(self, {job: count}, [], []))
            self.settled(job)

    def __del__(self) -> None:
        # Python may call this anywhere, even in a thread that holds a lock, so do not wait here. The next fetch or beat
        # does the rest.
        try:
            known = self.known
        except AttributeError:  # an interrupt struck during __init__
            return
        if self.open:
            known.leftovers.append(Leftover(self, self.open, list(self.finished), self.jobs))
        known.living.pop(id(self), None)


class Leftover:
    """The work that an ended or closed delivery left to be written; see `Delivery`.

    finished    jobs that are done        unseen    jobs that were never handed to the worker
    open        both of these, and jobs that the worker dropped
    here        the worker is in this process
    """

    __slots__ = ("known", "options", "worker", "open", "finished", "unseen", "here", "_late_at")

    def __init__(
        self, delivery: Delivery, open: dict[int, int], finished: list[int], unseen: list[JobEntry]
    ) -> None:
        self.known, self.options = delivery.known, delivery.options
        self.worker, self.open = delivery.worker, open
        self.finished, self.unseen = finished, unseen
        self.here = delivery.process is HOME
        self._late_at = delivery.renewed + delivery.options.lease

    def let_go(self) -> dict[int, float]:
        """The jobs that the worker dropped, and when their lease is over, in monotonic seconds."""
        told = {*self.finished, *(job for job, _, _ in self.unseen)}
        return {job: self._late_at for job in list(self.open) if job not in told}


class Turns(Protocol):
    """`Alone` (alone.py), as all that ends jobs uses it."""

    turns: dict[Process, Any]

    def took(self, delivery: Delivery, job: int, mono: float) -> None:
        """[lock] A process gets this suspect, or is found to hold it."""

    def wake(self, core: Core) -> None:
        """[lock] A job ends in the unit under way."""


class Known(Pauses):
    """One lane and group of a queue of one open store.

    name        name of the queue                           place    the key on which its workers wait: that of lane 0
    lanes       in lane 0: the others that were found, by priority, the highest first; never removed
    turns       in lane 0: how many fetches found jobs in several lanes

    living      deliveries that live, by their id(); some have nothing open
    leftovers   what ended deliveries left to be written
    returned    workers that got all jobs of their history, or had none
    begun       in lane 0: workers that have looked for jobs and are not among those -> their places in their history
    dropped     jobs that workers of this process dropped -> when the lease is over; nobody gets them before
    forgotten   the last of them that no log line told, 0 = none
    progress    the jobs whose progress this process has recorded, with its key
    room        callers that wait for room in a bounded queue, or for jobs to be settled. All lanes share it
    closing     the store is being closed: no more jobs are handed out
    halted      in lane 0: the queue is paused (pausing.py)
    plain       in lane 0: there are neither other lanes nor limited keys nor a pause, so a fetch may go the short way
    limited     a worker of this process has limits, so the end of a job wakes those that wait
    later       the delayed jobs of the queue, which all of its groups share
    results     the results of its jobs, likewise
    ticks       the schedules of the database, which all of its queues share
    alone       the processes that get less than they ask for, which all queues of the store share
    """

    def __init__(
        self,
        core: Core,
        db: int,
        options: Options,
        later: Later,
        results: Results,
        ticks: Ticks,
        alone: Turns,
        lane_0: Known | None = None,
    ) -> None:
        super().__init__(core, db, options)
        self.key, self.name = options.key, options.name
        self._options = options  # of the first queue object; its names are those of all
        self.lane_0 = lane_0
        self.lanes: dict[int, Known] = {}
        self.turns = 0
        self.living: dict[int, weakref.ref[Delivery]] = {}
        self.leftovers: deque[Leftover] = deque()
        self.dropped: dict[int, float] = {}
        self.forgotten = 0
        self.progress: dict[int, bytes] = {}
        self.returned: set[bytes] = set()
        self.begun: dict[bytes, dict[int, int]] = {}
        self.workers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.room: dict[Caller, None] = {}
        self.samples: deque[tuple[float, int, int]] = deque()
        self.next_tidy = 0.0  # monotonic seconds at which to look for stale consumers
        self.next_drop = 0.0  # and for dead jobs that are too old
        self.unswept = 0  # jobs acknowledged since the last sweep that deleted old finished jobs
        self.closing = False
        self.limited = False
        self.plain, self.halted = True, False
        # of what the cache was read from: number of the stream, -1 = read it again; and the group
        self.number = -1
        self.group: Group | None = None
        self.later, self.results, self.ticks = later, results, ticks
        self.alone = alone
        if lane_0 is None:
            later.groups.add(self)
            ticks.groups.add(self)
        else:
            self.workers, self.room = lane_0.workers, lane_0.room
            self.closing, self.limited = lane_0.closing, lane_0.limited
            self.keys = lane_0.keys

    def halt(self) -> None:
        """[lock] The queue is paused, in the unit under way. Of lane 0, which this is."""
        self.halted, self.plain = True, False

    def is_halted(self, keys: Keyspace) -> bool:
        """[lock] Whether the queue is still paused, since it was when somebody looked. Of lane 0, which this is."""
        self.halted = paused_since(keys, self._options) is not None
        self.plain = not (self.halted or self.lanes or self.keys is not None)
        return self.halted

    # --- lanes

    def all_lanes(self) -> list[Known]:
        """Lane 0, which this is, and the others."""
        return [self, *self.lanes.values()]

    def limit(self) -> None:
        """A worker has limits."""
        for lane in self.all_lanes():
            lane.limited = True

    def limit_keys(self) -> None:
        """[lock] A worker limits keys. They are read with the cache."""
        self.plain = False
        self.keys = Keys()
        for lane in self.all_lanes():
            lane.keys, lane.number = self.keys, -1

    def find_lanes(self, keys: Keyspace) -> None:
        """[lock] Look for lanes that an earlier process or another client has made."""
        for priority in HIGHEST_FIRST:
            if priority not in self.lanes and self._options.lane(priority).key in keys:
                self.add_lane(priority)

    def add_lane(self, priority: int) -> None:
        """[lock] There is a lane of this priority."""
        if priority in self.lanes:
            return
        lane = self._options.lane(priority)
        common = self.later, self.results, self.ticks, self.alone
        made = Known(self.core, self.db, lane, *common, self)
        self.plain = False
        lanes = {**self.lanes, priority: made}
        # Replace the dict, because other threads iterate over it.
        self.lanes = {each: lanes[each] for each in sorted(lanes, reverse=True)}

    def do_chores(self, ctx: Context, options: Options, mono: float) -> None:
        """[lock] Put the jobs that are due, each as a unit of its own, and look for lanes. Of lane 0, which this is."""
        # While higher lanes have jobs, the look at lane 0 is due at each fetch. The chores are not.
        if self.lanes and mono < self.chores_at:
            return
        core = self.core
        # Ticks first: they put jobs that are due now.
        ticks_in = self.ticks.advance(core, ctx)
        self.chores_at = mono + min(ticks_in, self.later.advance(core, ctx, options))
        self.find_lanes(ctx.database.keys)
        if self.lanes:
            self.chores_at = min(self.chores_at, mono + options.lease)

    def lane(self, priority: int) -> Known:
        """[lock] The lane of a priority, of lane 0, which this is."""
        if not priority:
            return self
        self.add_lane(priority)
        return self.lanes[priority]

    # --- the cache

    def fresh(self, ctx: Context, options: Options, stream: Stream, group: Group) -> None:
        """[lock] Make sure that the cache is of this stream as it is in memory now."""
        if self.number != stream.number or self.group is not group:
            self._forget()
            if self.lane_0 is None:
                self.find_lanes(ctx.database.keys)
                self.is_halted(ctx.database.keys)
            if self.keys is not None:
                self.keys.load(self.priority, stream, group)
            self._load(ctx, options, group)
            self.number, self.group = stream.number, group

    def stale(self) -> None:
        """Invalidate the cache: a unit failed after the cache was changed for it, or memory was rebuilt. Also those of
        the other lanes.
        """
        for known in self.all_lanes():
            known.number = -1
        self.later.stale()

    # --- who lives

    def held_jobs(self, mono: float) -> tuple[set[int], set[int]]:
        """Jobs that workers hold: those whose leases are renewed, and those beyond their time limit."""
        living: set[int] = set()
        lapsed: set[int] = set()
        for delivery in self.deliveries():
            (living if delivery.lives(mono) else lapsed).update(list(delivery.open))
        return living, lapsed

    def overran(self, mono: float) -> set[int]:
        """Jobs whose workers hold them beyond their time limit."""
        late = (d for d in self.deliveries() if not (d.beats or d.lives(mono)))
        return {job for delivery in late for job in list(delivery.open)}

    def leave(self, delivery: Delivery) -> Leftover | None:
        """End a delivery. Lists its jobs that were never handed out, which go back to the queue, and its finished jobs,
        which are still to be logged. Returns None if there are neither.
        """
        if not (delivery.jobs or delivery.finished):
            return None
        finished, unseen = delivery.take_finished(), delivery.take_unseen()
        told = (*finished, *(job for job, _, _ in unseen))
        counts = {job: delivery.open.get(job, 0) for job in told}
        left = Leftover(delivery, counts, finished, unseen)
        delivery.known.leftovers.append(left)
        # from here on the worker does not hold these jobs, even if the log does not say so yet
        for job in told:
            delivery.settled(job)
        return left

    def dealt_with(self, left: Iterable[Leftover]) -> None:
        """Remove these leftovers from the list, because they are in the log now."""
        for leftover in left:
            try:
                leftover.known.leftovers.remove(leftover)
            except ValueError:
                pass  # another thread has already written and removed this leftover

    def deliveries(self) -> list[Delivery]:
        """Deliveries that have open jobs."""
        found: list[Delivery] = []
        # Do not call items(): it creates tuples, so the garbage collector may run, and a delivery's `__del__` would
        # change this dict.
        for key in list(self.living):
            reference = self.living.get(key)
            delivery = None if reference is None else reference()
            if delivery is not None:
                if delivery.open:
                    found.append(delivery)
            elif self.living.get(key) is reference:
                self.living.pop(key, None)  # an interrupt kept `__del__` from doing that
        return found

    def ended(self, firsts: Iterable[bytes]) -> None:
        """[lock] Jobs end in the unit under way, given by the IDs that `put` returned: wake those who wait for their
        results.
        """
        if self.results.asked:
            core = self.core
            for first in firsts:
                self.results.ended(core, first)

    # --- units

    def unit(self, work: Callable[[], Any]) -> Any:
        """Run a call that decides and commits a unit. If it fails, invalidate the cache."""
        try:
            return work()
        except BaseException:
            self.stale()
            raise

    def freed(self, ended: Iterable[int] = ()) -> None:
        """[lock] Jobs end, or one goes back, in the unit under way: wake the workers whose limits may now let them take
        another one. `ended`: those that end.
        """
        if self.keys is not None:
            self.keys.ended(self.priority, ended)
        self.core.waiting.signal([self.place])

    def let_others_in(self) -> None:
        """[lock] A job ends, or goes back, in the unit under way: wake the consumers that it kept from getting jobs."""
        if self.alone.turns:
            self.alone.wake(self.core)

    def made_room(self) -> None:
        """Jobs were removed: wake the putters that wait for room."""
        if self.room:
            with self.core.lock:
                for caller in list(self.room):
                    caller.nudge()

    # --- figures

    def sample_now(self, state: State, mono: float) -> None:
        """[lock] Note the figures of all lanes, for `sample`."""
        if self.lane_0 is not None:
            self.lane_0.sample_now(state, mono)
        else:
            self.sample(mono, *totals(state, self.db, self._options))

    def sample(self, mono: float, added: int, depth: int) -> tuple[float | None, float | None]:
        """Jobs put and jobs done per second, over the last minute at most. None if there is no earlier sample."""
        samples = self.samples
        while len(samples) > 1 and samples[1][0] <= mono - RATE_SECONDS:
            samples.popleft()
        put = gone = None
        if samples and mono > samples[0][0]:
            at, added_then, gone_then = samples[0]
            put = max(0, added - added_then) / (mono - at)
            gone = max(0, added - depth - gone_then) / (mono - at)
        if not samples or mono - samples[-1][0] >= RATE_SECONDS / 120:
            samples.append((mono, added, added - depth))
        return put, gone
