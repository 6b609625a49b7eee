"""Jobs: which connection holds which job of which queue, for the QUEUE commands.

A job lives while the connection that took it lives and, if TAKE named a HEARTBEAT, while QUEUE RENEW names it in time.
It is settled by its worker's name, its ID and its number of deliveries, over any connection. When a connection ends,
its jobs are abandoned: they are delivered again when their lease is over, as after a crash of an embedded worker.

The jobs of a TAKE with CONFIRM are unconfirmed until CONFIRM, RENEW or a settling names one of them, over any
connection. Until then no handler has begun, so if their connection ends they go back to the queue uncounted. That waits
for GRACE_S: the connection may have ended just before a CONFIRM arrived, and then the client renews over another one.
If their lease ends, the next worker gets them uncounted (jobs/work/look.py). When that has the name of the first one,
the names of their processes tell the two apart, and in one process their connections, over which they confirm.

Deliveries, leases and settling are those of the embedded queue (jobs/work). The loop's thread uses this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Literal, Protocol

from tidelog.engine.api import Context, EntryRow
from tidelog.engine.errors import CommandError
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lane_of
from tidelog.jobs.option_words import options_of
from tidelog.jobs.options import Options
from tidelog.jobs.own import Own
from tidelog.jobs.verbs.drop import Drop
from tidelog.jobs.verbs.named import Fences
from tidelog.jobs.verbs.renew import Renew, strays
from tidelog.jobs.work.known import Delivery, JobEntry, Known, Process
from tidelog.jobs.work.leases import leases_of
from tidelog.server.monitoring.times import JOB_BUCKETS_S, Times
from tidelog.store.commit.core import Core

QUEUES_MAX: Final = 1_000  # with their options, cached
UNBLOCKED_MAX: Final = 1_000  # tokens of calls that were ended before they came
GRACE_S: Final = 1.0  # for which unconfirmed jobs wait after the end of their connection
FEW: Final = 64  # a longer list of a connection's jobs is pruned once most of them are settled
JobKey = tuple[int, bytes, bytes, int]  # database, key, group, job
Token = tuple[int, bytes, bytes]  # database, key, and what the client named its call
Later = Callable[..., object]  # `call_later` of the loop


class Lent:
    """The jobs of one TAKE.

    heartbeat    seconds after which they are taken back without QUEUE RENEW; None = when the connection ends
    limit_at     monotonic seconds at which they are taken back in any case, None = never
    unconfirmed  no handler has begun with them: the delivery still lists them in `jobs`
    orphaned     their connection has ended, and GRACE_S has not
    ousted       the processes whose leases of some of them ended before they confirmed
    since        when they were lent, monotonic seconds
    """

    __slots__ = ("delivery", "heartbeat", "limit_at", "unconfirmed", "orphaned", "ousted", "since")

    def __init__(
        self,
        delivery: Delivery,
        heartbeat: float | None,
        limit: float | None,
        unconfirmed: bool = False,
    ) -> None:
        self.delivery, self.heartbeat = delivery, heartbeat
        self.unconfirmed, self.orphaned = unconfirmed, False
        self.ousted: tuple[Process, ...] = ()
        mono = self.since = delivery.known.monotonic()
        self.limit_at = None if limit is None else mono + limit
        delivery.until = None
        self.renew(mono)

    def renew(self, mono: float) -> None:
        """The client has named the jobs."""
        delivery = self.delivery
        if self.heartbeat is None:
            until = self.limit_at
        else:
            until = max(delivery.until or 0.0, mono + self.heartbeat)
            if self.limit_at is not None:
                until = min(until, self.limit_at)
        delivery.until, delivery.beats = until, until != self.limit_at

    def extend(self, mono: float, length: float) -> None:
        """The client extended the lease of a job by `length` seconds."""
        if self.limit_at is not None:
            self.limit_at = max(self.limit_at, mono + length)


class Borrower(Protocol):
    """A session, as far as it holds jobs.

    jobs       None until it took some
    process    the process of its client; one of its own if the client did not say which
    """

    jobs: LentJobs | None
    process: Process


class Unblockable(Protocol):
    """A session, as far as its call can be ended."""

    def unblock(self, error: bytes | None) -> bool:
        """End a blocked call as if it timed out. False if it is not blocked."""


class Desk:
    """The queues of one server that clients use, and the jobs that clients hold.

    parked     (database, key, token) -> the session whose TAKE waits with this token
    durations  (database, key) -> for how long clients held jobs that they settled, of the first QUEUES_MAX queues
    """

    def __init__(self) -> None:
        self.parked: dict[Token, Unblockable] = {}
        self.durations: dict[tuple[int, bytes], Times] = {}
        self._unblocked: dict[Token, None] = {}
        self._held: dict[JobKey, Lent] = {}
        self._queues: dict[tuple[int, bytes, tuple[bytes, ...]], Served] = {}
        # The words of commands that clients repeat, with the queue and the options that they name.
        self.given: dict[tuple[object, ...], tuple[Served, Own]] = {}
        self.requests: dict[tuple[object, ...], Any] = {}

    def queue(self, core: Core, db: int, name: bytes, words: tuple[bytes, ...]) -> Served:
        """The queue of that name with these options, given as words. Raises CommandError."""
        found = self._queues.get((db, name, words))
        if found is None:
            if len(self._queues) >= QUEUES_MAX:
                self._queues.clear()  # jobs in clients' hands keep what they need
            found = Served(self, core, db, options_of(name, words))
            self._queues[db, name, words] = found
        return found

    def hand(self, session: Borrower, queue: Served, lent: Lent) -> None:
        """The client of this session holds these jobs now."""
        mine = session.jobs
        if mine is None:
            mine = session.jobs = LentJobs(self)
        if lent.unconfirmed:
            mine.newest = lent
        db, key, group = queue.place
        for job in lent.delivery.open:
            place = db, key, group, job
            before = self._held.get(place)
            if before is not None and before.unconfirmed:
                lent.ousted = (*lent.ousted, *before.ousted, before.delivery.process)
            self._held[place] = mine.jobs[place] = lent
        mine.prune()

    def confirm(self, session: Borrower, queue: Served, lent: Lent, job: int) -> bool:
        """The client of this session has named a job of these, which are unconfirmed. False if another one got it."""
        with lent.delivery.known.core.lock:  # a worker of this process may be getting it
            if job not in lent.delivery.open:
                return False
            lent.unconfirmed = False
            lent.delivery.jobs.clear()
        if lent.orphaned:
            lent.orphaned = False
            lent.delivery.process = session.process
            self.hand(session, queue, lent)
        return True

    def orphan(self, lent: Lent, later: Later) -> None:
        """The connection of unconfirmed jobs has ended."""
        if not lent.orphaned:
            lent.orphaned = True
            later(GRACE_S, self._retract_orphan, lent)

    def _retract_orphan(self, lent: Lent) -> None:
        if lent.orphaned:
            self.retract(lent)

    def retract(self, lent: Lent) -> None:
        """Unconfirmed jobs go back to the queue uncounted."""
        lent.unconfirmed = lent.orphaned = False
        delivery = lent.delivery
        db, root = delivery.known.place
        for job in delivery.open:
            self.forget((db, root, delivery.known.group_key, job), lent)
        core = delivery.known.core
        if delivery.known.leave(delivery) is not None and not core.ended:
            leases_of(core).arm()

    def unblock(self, token: Token) -> bool:
        """End the TAKE that waits with this token. Returns False if it has not come; then it will not wait."""
        session = self.parked.get(token)
        if session is not None:
            return session.unblock(None)
        if len(self._unblocked) >= UNBLOCKED_MAX:
            del self._unblocked[next(iter(self._unblocked))]
        self._unblocked[token] = None
        return False

    def was_unblocked(self, token: Token) -> bool:
        """Whether `unblock` came before the TAKE with this token."""
        return self._unblocked.pop(token, 0) is None

    def find(
        self, session: Borrower, queue: Served, worker: bytes, job: int, count: int
    ) -> Lent | Literal[False] | None:
        """The jobs among which a worker holds this one.

        None if no connection to this server holds it, False if a worker of this name has it by a delivery of the same
        number after the process of this session.
        """
        lent = self._held.get((*queue.place, job))
        if lent is None or lent.delivery.worker != worker or lent.delivery.open.get(job) != count:
            return None
        process = session.process
        if lent.ousted and process in lent.ousted and process != lent.delivery.process:
            return False
        return lent

    def settled(self, queue: Served, jobs: Iterable[int]) -> None:
        """These jobs were settled."""
        for job in jobs:
            lent = self._held.pop((*queue.place, job), None)
            if lent is not None:
                lent.delivery.settled(job)
                self._observe(queue.place[:2], lent)

    def _observe(self, place: tuple[int, bytes], lent: Lent) -> None:
        """Count for how long a job was held."""
        times = self.durations.get(place)
        if times is None:
            if len(self.durations) >= QUEUES_MAX:
                return
            times = self.durations[place] = Times(JOB_BUCKETS_S)
        times.observe(lent.delivery.known.monotonic() - lent.since)

    def forget(self, place: JobKey, lent: Lent) -> None:
        """A connection does not hold this job any more."""
        if self._held.get(place) is lent:
            del self._held[place]


class LentJobs:
    """The jobs that one connection holds, and settled ones that were not pruned yet.

    newest    those of its last TAKE with CONFIRM, the only ones that may be unconfirmed
    """

    __slots__ = ("jobs", "newest", "_desk", "_prune_at")

    def __init__(self, desk: Desk) -> None:
        self.jobs: dict[JobKey, Lent] = {}
        self.newest: Lent | None = None
        self._desk = desk
        self._prune_at = FEW

    def prune(self) -> None:
        """Drop settled jobs from the list if it has doubled since the last time."""
        if len(self.jobs) <= self._prune_at:
            return
        gone = [p for p, lent in self.jobs.items() if p[3] not in lent.delivery.open]
        for place in gone:
            self._desk.forget(place, self.jobs.pop(place))
        self._prune_at = max(FEW, 2 * len(self.jobs))

    def is_lost(self, place: JobKey) -> bool:
        """Whether the last TAKE with CONFIRM gave this job, and its worker holds it no more by that."""
        lent = self.newest
        if lent is None or self.jobs.get(place) is not lent:
            return False
        return place[3] not in lent.delivery.open

    def retract(self) -> None:
        """The client asks for more jobs over this connection. If it has not confirmed the last ones, no handler will
        get them: it has put the connection back into a pool.
        """
        if self.newest is not None and self.newest.unconfirmed:
            self._desk.retract(self.newest)
        self.newest = None

    def abandon(self, later: Later) -> None:
        """The connection has ended: its jobs belong to a worker that is gone. A worker of the same name may get them at
        once, others when their lease is over. Unconfirmed ones go back.
        """
        newest, self.newest = self.newest, None
        for place, lent in self.jobs.items():
            if lent is newest and lent.unconfirmed:
                self._desk.orphan(lent, later)
                continue
            self._desk.forget(place, lent)
            # If the job were left to `Delivery.__del__`, it would count as dropped by a living worker.
            lent.delivery.open.pop(place[3], None)
        self.jobs.clear()


class Served:
    """A queue with the options that a client gave, and the jobs of it that clients hold."""

    def __init__(self, desk: Desk, core: Core, db: int, options: Options) -> None:
        self.engine = QueueEngine(core, db, options)
        self.options = options
        self.desk = desk
        self.place = db, options.key, options.group_key

    def delivery(self, session: Borrower, worker: bytes, lane: Known | None = None) -> Delivery:
        """An empty delivery for a worker, of jobs of one lane; None = lane 0."""
        if lane is None:
            return Delivery(self.engine.known, self.options, worker, False, session.process)
        options = self.options.lane(lane.priority)
        return Delivery(lane, options, worker, False, session.process)

    def held(
        self, session: Borrower, worker: bytes, job: int, count: int, lent: Lent | None
    ) -> tuple[Delivery, JobEntry]:
        """A job that a worker says it holds, in its delivery, or in one of its own if this process does not lend it."""
        lane, row = self._found(job)
        if lent is not None:
            return lent.delivery, (job, row, count)
        return self.delivery(session, worker, lane), (job, row, count)

    def named(
        self, session: Borrower, worker: bytes, job: int, count: int
    ) -> Lent | Literal[False] | None:
        """A worker has named a job, which confirms its TAKE. Returns what `Desk.find` does."""
        lent = self.desk.find(session, self, worker, job, count)
        if lent and lent.unconfirmed and not self.desk.confirm(session, self, lent, job):
            return False
        return lent

    def confirm(self, session: Borrower, worker: bytes, job: int, count: int) -> bool:
        """A handler begins with the jobs of a TAKE: whether the worker holds this one of them."""
        if session.jobs is not None and session.jobs.is_lost((*self.place, job)):
            return False
        return bool(self.named(session, worker, job, count))

    def _found(self, job: int) -> tuple[Known, EntryRow]:
        """The lane of a job, and its row, as evidence if it dies; an empty one if it is gone."""

        def at(ctx: Context) -> tuple[Known, EntryRow]:
            lane = self.engine.known.lane(lane_of(job))
            stream = ctx.stream(lane.key)
            return lane, () if stream is None else stream.get(job) or ()

        return self._asked(at)  # type: ignore[no-any-return]

    def _asked(self, look: Callable[[Context], Any]) -> Any:
        """The result of a look under the lock. Raises CommandError."""
        found, _ = self.engine.core.run(self.engine.db, look, None, False)
        if isinstance(found, CommandError):
            raise found
        return found

    def renew(self, session: Borrower, request: Renew) -> list[int]:
        """Keep the jobs of a living worker. Returns those that it still holds.

        A job that this process does not lend, because an earlier server lent it, is lent to this connection.
        """
        engine, worker, beat = self.engine, request.worker, request.beat
        mono = engine.core.monotonic()
        kept: list[int] = []
        unknown: Fences = []
        for job, count in request.fences:
            lent = self.named(session, worker, job, count)
            if not lent:
                if lent is None:
                    unknown.append((job, count))
                continue
            if beat is not None:
                lent.heartbeat = beat
            lent.renew(mono)
            kept.append(job)
        found = self._asked(partial(strays, engine, worker, unknown)) if unknown else ()
        for lane, mine, suspects in found:
            if mine:
                delivery = self.delivery(session, worker, lane)
                delivery.open = dict(mine)
                self.desk.hand(session, self, Lent(delivery, beat, None))
                with engine.core.lock:
                    for job in suspects:
                        lane.alone.took(delivery, job, mono)
                engine.leases.arm()
                kept += delivery.open
        return kept

    def drop(self, session: Borrower, request: Drop) -> int:
        """A living worker dropped these jobs: they wait for the end of their lease. Returns how many it held."""
        dropped = 0
        for job, count in request.fences:
            lent = self.desk.find(session, self, request.worker, job, count)
            if lent:
                lent.delivery.drop(job)
                self.desk.settled(self, (job,))
                dropped += 1
        if dropped:
            self.engine.leases.arm()
        return dropped
