"""QUEUE TAKE: a worker gets jobs, or waits for them."""

from __future__ import annotations

from functools import partial

from tidelog.engine import ids
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.jobs.verbs.take import Take
from tidelog.jobs.work.fetch import AGAIN, NO_GROUP, NOTHING, Fetch
from tidelog.jobs.work.leases import leases_of
from tidelog.jobs.work.retention import SWEEP_JOBS
from tidelog.server.blocked import NOT_YET
from tidelog.server.commands.queue.given import (
    Given,
    check_writable,
    worker_of,
)
from tidelog.server.commands.queue.waiting import Nudge, Parked
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.jobs import Lent
from tidelog.server.session import Session
from tidelog.server.wire.replies import Jobs
from tidelog.store.commit.durability import Promise


def take(session: Session, given: Given, request: Take) -> Reply:
    """QUEUE TAKE. BLOCK 0 waits for ever."""
    check_writable(session)
    if session.jobs is not None:
        session.jobs.retract()
    return _Taking(session, given, request).begin()


class _Taking(Parked):
    """A worker that waits for jobs."""

    def __init__(self, session: Session, given: Given, request: Take) -> None:
        super().__init__(session)
        queue = self._queue = given.queue
        self._worker = worker_of(request.worker)
        self._beat, self._limit = request.beat, request.limit
        block, token = given.own.get(b"BLOCK"), request.token
        self._token = None if token is None else (*queue.place[:2], token)
        # One call gets jobs of one lane, so the calls after it go on with the others.
        begun = queue.engine.known.begun
        if request.history:
            begun[self._worker] = {}
        self._request = Fetch(
            *(queue.engine.known, queue.options, self._worker, request.count),
            None if block is None else parse_timeout(session, block[0]),
            begun.get(self._worker),
            request.limit,
            unsure=token is not None,
            process=session.process,
        )
        if self._token is not None and session.server.desk.was_unblocked(self._token):
            self._request.timeout_ms = None

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        request, queue, core = self._request, self._queue, self._session.core
        make = None if request.timeout_ms is None else partial(Nudge, self)
        while True:
            request.delivery = queue.delivery(self._session, self._worker)
            request.before = None
            try:
                reply, promise = core.run(self._session.db, request, make, False)
                if isinstance(reply, CommandError):
                    self._session.rest_on(promise)
                    raise reply
            except BaseException:
                self._broke()
                raise
            if reply.__class__ is Waiter:
                if self._token is not None:
                    self._session.server.desk.parked[self._token] = self._session
                self._waiter = reply
                self._waits()
                return self
            found = self._got(reply, promise)
            if found is not NOT_YET:
                return found

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        """The reply for the outcome of a fetch; NOT_YET: ask again."""
        request, queue, session = self._request, self._queue, self._session
        known = queue.engine.known
        outcome = request.landed(reply)
        known.made_room()
        if outcome is NO_GROUP:
            queue.engine.subscribe()
            return NOT_YET
        if outcome is AGAIN:
            return NOT_YET
        session.rest_on(promise)
        if outcome is NOTHING:
            queue.engine.sweep(1)  # the worker has nothing else to do
            return NULL_ARRAY
        delivery = request.delivery
        del request.delivery
        unconfirmed = self._token is not None
        lent = Lent(delivery, self._beat, self._limit, unconfirmed)
        session.server.desk.hand(session, queue, lent)
        jobs = Jobs((ids.text(job), count, row) for job, row, count in reversed(delivery.jobs))
        if not unconfirmed:
            delivery.jobs.clear()
        leases = leases_of(session.core)
        if not leases.armed:
            leases.arm()
        queue.engine.sweep(SWEEP_JOBS)
        return jobs

    def _waits(self) -> None:
        """See `Parked`."""
        self._request.tell_deaths()

    def _over(self) -> None:
        """See `Parked`."""
        if self._token is not None:
            self._session.server.desk.parked.pop(self._token, None)

    def _broke(self) -> None:
        """See `Parked`. Jobs that came go back with their count."""
        known = self._queue.engine.known
        self._request.failed()
        self._request.tell_deaths()
        known.stale()
        if self._request.delivery.known.leave(self._request.delivery) is not None:
            leases_of(self._session.core).arm()
