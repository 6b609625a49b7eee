"""Leases: keep jobs of living workers from being taken over, and clean up after workers.

Each open store has one daemon thread, which sleeps while no worker holds a job. On each beat, for every queue:

    write gathered acknowledgements                         renew leases older than a third of `lease`
    write what ended deliveries left behind                 go on with retention by age
    now and then, remove consumers that are no longer used, and dead jobs that are too old

It is a thread, not a task, so that a blocked event loop or a busy worker keeps its jobs.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import deque
from functools import partial
from typing import Final

from tidelog.engine.api import XGROUP_DELCONSUMER, Context, Group, Stream, log_claim, xtrim
from tidelog.jobs.cancels import Cancels
from tidelog.jobs.hangs import Hangs
from tidelog.jobs.options import Options
from tidelog.jobs.progress import Reports
from tidelog.jobs.rows import text
from tidelog.jobs.work.alone import Alone
from tidelog.jobs.work.drain import Drain
from tidelog.jobs.work.drops import tell_drop
from tidelog.jobs.work.ends import log_finished, log_leftovers
from tidelog.jobs.work.known import Delivery, Known, Leftover
from tidelog.jobs.work.later import Later
from tidelog.jobs.work.results import Results
from tidelog.jobs.work.retention import sweep, sweep_dead
from tidelog.jobs.work.ticks import Ticks
from tidelog.store.commit.callers import Bell, Caller, Holder
from tidelog.store.commit.core import Core
from tidelog.store.errors import StoreClosed

BEAT_SECONDS: Final = 1.0  # longest pause between beats while a worker holds a job
# a beat removes a consumer that has no jobs and was not seen for this long
STALE_MS: Final = 86_400_000
TIDY_SECONDS: Final = 3600.0
DROP_SECONDS: Final = 60.0  # least time between two beats that look for dead jobs which are too old
CONSUMERS_MAX: Final = 100  # that one beat removes
LATEST_MAX: Final = 1_000  # this many queues stay cached after their last use

GroupKey = tuple[int, bytes, bytes]  # database, key, group

log = logging.getLogger("tidelog.queue")


class Leases:
    """The queues of one open store, and the thread that looks after them.

    known     (database, key, group) -> what the workers of that queue share
    laters    (database, key) -> what the groups of that queue know of its delayed jobs
    results   (database, key) -> what they know of its results
    armed     the thread runs or is about to           over    the thread has ended, and so has the store
    closing   the store is being closed: its queues hand out no more jobs
    alone     the processes that get less than they ask for, which all queues share
    cancels   the deliveries that were cancelled
    reports   the progress that is still to be recorded
    hangs     the handlers that hang, as the runs of workers say
    """

    def __init__(self, core: Core) -> None:
        self._core = weakref.ref(core)
        self._manual = core.clock.manual
        # A program may use one queue per user. So free unused queues, except for the latest ones.
        self.known: weakref.WeakValueDictionary[GroupKey, Known] = weakref.WeakValueDictionary()
        self.alone = Alone(self.known)
        self.cancels = Cancels()
        self.reports = Reports()
        self.hangs = Hangs()
        self._latest: deque[Known] = deque(maxlen=LATEST_MAX)
        self.laters: weakref.WeakValueDictionary[tuple[int, bytes], Later] = (
            weakref.WeakValueDictionary()
        )
        self.results: weakref.WeakValueDictionary[tuple[int, bytes], Results] = (
            weakref.WeakValueDictionary()
        )
        self._ticks: dict[int, Ticks] = {}
        self.armed = self.over = self.closing = False
        self._wake = Bell()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._troubled = False
        core.clock.ticked(self.ticked)

    def of(self, core: Core, db: int, options: Options) -> Known:
        """The state that the workers of a queue share; made on first use."""
        place = db, options.key, options.group_key
        found = self.known.get(place)
        if found is None:
            with self._starting:
                found = self.known.get(place)
                if found is None:
                    later = self.laters.get((db, options.key))
                    if later is None:
                        later = self.laters[db, options.key] = Later(core, db, options.key)
                    results = self.results.get((db, options.key))
                    if results is None:
                        results = self.results[db, options.key] = Results(db, options.key)
                    ticks = self.ticks_of(db)
                    common = later, results, ticks, self.alone
                    found = self.known[place] = Known(core, db, options, *common)
                    found.closing = self.closing
                    self._latest.append(found)
        return found

    def ticks_of(self, db: int) -> Ticks:
        """Knowledge about the schedules of a database."""
        return self._ticks.setdefault(db, Ticks(db))

    def queues(self) -> list[Known]:
        """The queues that are in use or were lately, each lane for itself."""
        found = [reference() for reference in self.known.valuerefs()]
        return [lane for known in found if known is not None for lane in known.all_lanes()]

    def arm(self) -> None:
        """Start the beats: a worker holds a job."""
        self.armed = True
        if self._manual:
            return
        try:
            if self._thread is None:
                with self._starting:
                    if self._thread is None:
                        self._start()
            self._wake.ring()
        except RuntimeError as error:
            # The system could not start a thread. This process still knows which workers live, so it takes no lease
            # from them. But after a crash, another process could take over a lease too early. The next fetch writes the
            # acknowledgements that the thread would have written.
            self.armed = False  # the next call tries again
            if not self._troubled:
                log.warning(
                    "the thread that renews leases could not be started; the next call tries again: %s",
                    error,
                )
            self._troubled = True
        except BaseException:
            self.armed = False
            raise

    def _start(self) -> None:
        _see_to_the_end(self)
        thread = threading.Thread(
            target=_run,
            args=(weakref.ref(self, partial(_end, self._wake)), self._wake),
            name="tidelog-leases",
            daemon=True,
        )
        thread.start()
        # If an interrupt comes before this line, a second thread starts later. It costs a thread, but no lease.
        self._thread = thread

    def stop(self) -> None:
        """Stop all queues from handing out jobs."""
        with self._starting:
            self.closing = True
            for known in self.queues():
                known.closing = True

    def take_back(self) -> None:
        """Return jobs that were fetched but not handed out; the next beat writes it."""
        for known in self.queues():
            for delivery in known.deliveries():
                known.leave(delivery)

    def drain(self, limit: float | None, caller: Caller, me: Holder) -> Drain | None:
        """A wait of at most `limit` seconds for the jobs that others hold. None if the store has ended."""
        core = self._core()
        return None if core is None or core.ended else Drain(core, self, limit, caller, me)

    def close(self) -> None:
        """Before the store is closed: make a last beat and end the thread."""
        self.stop()
        self.take_back()
        self.beat()
        self.over = True
        self._wake.ring()

    def ticked(self) -> None:
        """A manual clock was moved."""
        self.beat()
        for known in self.queues():
            known.made_room()

    def reloaded(self) -> None:
        """[lock] Memory was rebuilt: invalidate the caches."""
        for known in self.queues():
            known.stale()

    def nudge(self) -> None:
        """[lock] Wake the callers that wait for room: the store was closed or follows another one, so they raise."""
        for known in self.queues():
            for caller in list(known.room):
                caller.nudge()

    def beat(self) -> float | None:
        """One round over the queues. Returns seconds until the next one, None if there is nothing to look after."""
        pause = self._beat()
        if self.reports.newest and (core := self._core()) is not None:
            self.reports.flush(core.monotonic())
        for known in self.queues():
            job, known.forgotten = known.forgotten, 0
            if job:
                tell_drop(known.name, text(job))
        return pause

    def _beat(self) -> float | None:
        core = self._core()
        if core is None or core.ended:
            return None
        pause = BEAT_SECONDS
        busy = False
        for known in self.queues():
            living = _to_look_after(known)
            if not living and not known.leftovers:
                continue
            busy = True
            for delivery in living:
                pause = min(pause, delivery.options.lease / 3)
            unit = _Beat(known)
            try:
                try:
                    known.unit(partial(core.decided, known.db, unit))
                except BaseException:
                    unit.failed()
                    raise
                unit.written()
                known.made_room()
                keeping = [d.options for d in living if d.options.keeps]
                if keeping:
                    sweep(core, known, keeping[-1])
                if living and known.monotonic() >= known.next_drop:
                    known.next_drop = known.monotonic() + DROP_SECONDS
                    sweep_dead(core, known.db, living[-1].options)
            except StoreClosed:
                return None
            except Exception as error:
                # The next beat tries again. Until then living workers keep their jobs, because this process knows that
                # they live.
                if not self._troubled:
                    name = known.name
                    log.warning("queue %s: leases could not be renewed: %s", name, repr(error))
                self._troubled = True
                continue
            self._troubled = False
        if busy:
            return pause
        self.armed = False
        # Look again. A worker may have got a job just before, and it did not wake this thread because `armed` was still
        # True.
        if any(_to_look_after(known) or known.leftovers for known in self.queues()):
            self.armed = True
            return 0.0
        return None


class _Beat:
    """The unit of one beat for one queue. Runs under the store's lock."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._writing: list[tuple[Delivery, list[int], list[int]]] = []
        self._left: list[Leftover] = []

    def written(self) -> None:
        """The unit is in the log."""
        for delivery, jobs, held in self._writing:
            delivery.written(jobs, held)
        self._known.dealt_with(self._left)

    def failed(self) -> None:
        """The unit is not in the log, or its outcome is unknown: the finished jobs still have to be acknowledged."""
        for delivery, jobs, _ in self._writing:
            delivery.finished.extendleft(reversed(jobs))

    def __call__(self, ctx: Context) -> None:
        known = self._known
        value = ctx.database.keys.get(known.key)
        stream = value if isinstance(value, Stream) else None
        group = None if stream is None else stream.groups.get(known.group_key)
        if stream is None or group is None:
            self._left = list(known.leftovers)  # stream or group is gone: nothing to write
            return
        mono = known.monotonic()
        known.sample_now(ctx.state, mono)
        self._left = log_leftovers(known, ctx, stream, group, mono)
        options: Options | None = None
        for delivery in known.deliveries():
            options = delivery.options
            jobs: list[int] = []
            if delivery.finished:
                jobs = delivery.take_finished()
                done = delivery.still_held(group, jobs)
                self._writing.append((delivery, jobs, done))
                if done:
                    known.fresh(ctx, options, stream, group)
                    log_finished(known, options, ctx, stream, done)
            due = mono - delivery.renewed >= delivery.options.lease / 3
            if due and delivery.lives(mono):
                _renew(ctx, delivery, group, mono, jobs)
        if options is None:
            return
        failures = ctx.database.keys.get(options.failures_key)
        if isinstance(failures, Stream) and failures.length > options.max_failures:
            most = b"%d" % options.max_failures
            xtrim(ctx, [b"XTRIM", options.failures_key, b"MAXLEN", most])
        if mono >= known.next_tidy:
            more = _tidy(ctx, known, options, group)
            known.next_tidy = mono if more else mono + TIDY_SECONDS


def _renew(
    ctx: Context, delivery: Delivery, group: Group, mono: float, finished: list[int]
) -> None:
    """Renew the leases of a delivery, except for jobs that this unit acknowledges."""
    delivery.renewed = mono
    told = set(finished)
    counts = dict(delivery.open)  # the worker may drop a job meanwhile
    opened = [job for job in counts if job not in told]
    claims = {job: counts[job] for job in delivery.still_held(group, opened)}
    for job in [job for job in opened if job not in claims]:
        delivery.settled(job)  # lost to another worker
    if claims:
        options = delivery.options
        log_claim(
            ctx, options.key, options.group_key, delivery.worker, claims, ctx.now, ctx.now, ()
        )


def _tidy(ctx: Context, known: Known, options: Options, group: Group) -> bool:
    """Remove consumers without jobs that were not seen for a day. Returns whether some are left for the next beat."""
    consumers = [reference() for reference in known.workers.valuerefs()]
    live = {consumer.worker.encode() for consumer in consumers if consumer is not None}
    stale = [
        consumer.name
        for consumer in group.consumers.values()
        if ctx.now - consumer.seen_time > STALE_MS
        and consumer.name not in live
        and not group.pending.held_by(consumer.index)
    ]
    for name in stale[:CONSUMERS_MAX]:
        ctx.effects.append((XGROUP_DELCONSUMER, ctx.db, options.key, options.group_key, name))
    return len(stale) > CONSUMERS_MAX


def _to_look_after(known: Known) -> list[Delivery]:
    mono = known.monotonic()
    return [d for d in known.deliveries() if d.lives(mono) or d.finished]


def leases_of(core: Core) -> Leases:
    """The leases of an open store."""
    if core.queues is None:
        with core.lock:  # raises if the store was closed or forked
            if core.queues is None:
                made = core.queues = Leases(core)
                core.landing.rebuilt.append(made.reloaded)
    assert isinstance(core.queues, Leases)
    return core.queues


def _run(leases_ref: weakref.ref[Leases], wake: Bell) -> None:
    while True:
        leases = leases_ref()
        if leases is None:
            break
        pause = leases.beat()
        if leases.over:
            break
        del leases
        wake.wait(pause)
    wake.ring()  # if an interrupted start left a second thread, wake it, so that it ends too


def _end(wake: Bell, gone: object) -> None:
    wake.ring()


_started: weakref.WeakSet[Leases] = weakref.WeakSet()


def _see_to_the_end(leases: Leases) -> None:
    """Have gathered acknowledgements written when the process ends, so that no finished job is repeated."""
    if not _started:
        atexit.unregister(_flush)
        # Register last, because atexit calls handlers in reverse order: this one must run before that of the stores.
        atexit.register(_flush)
    _started.add(leases)


def _flush() -> None:
    for leases in list(_started):
        leases.take_back()
        leases.beat()
