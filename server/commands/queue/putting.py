"""QUEUE PUT and PUTMANY."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import ROOM_SECONDS
from tidelog.jobs.job_options import JOB, headers_in
from tidelog.jobs.putting import BATCH_JOBS, Attempt, AttemptMany, create_later
from tidelog.jobs.rows import VALUE
from tidelog.jobs.units import checked_payload, in_units
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.put_many import PutMany
from tidelog.jobs.work.fetch import NO_GROUP
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.commands.queue.given import (
    Given,
    check_writable,
    checked,
    given_again,
)
from tidelog.server.commands.queue.waiting import Nudge
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.jobs import Served
from tidelog.server.once import NEW
from tidelog.server.session import Session
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.durability import Promise

Wakes = Callable[[], Caller] | None  # makes what is woken when there is room
Tried = tuple[Reply, Promise | None, Caller | None]  # a reply or NOT_YET, a promise, and who waits
_XADD: Final = b"XADD"
# A put with one of these needs a decision of its own.
_SLOW: Final = frozenset(JOB) - {b"HEADERS"}


def put(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PUT. The parts of a plain put, which most are, are no request: that takes time."""
    given = given_again(b"PUT", session, args[2], args[4:], PutJob.options)
    queue, core = given.queue, session.core
    once = given.once(session)
    check_writable(session)
    if queue.options.max_depth is None and _SLOW.isdisjoint(given.own):
        value = checked_payload(queue.options.name, args[3])
        row = (VALUE, value, *headers_in(given.own))
        if once is None:
            effect, log, lsn = core.add(session.db, args[2], row, False)
            session.rest_on((log, lsn, True))
            return b"%d-%d" % (effect[3], effect[4])

        def add(ctx: Context) -> Reply:
            return core.decide_words(ctx, [_XADD, args[2], b"*", *row])

        work = partial(once.decided, add)
        return checked(session, core.run(session.db, work, None, False))
    job = PutJob.parse(args[3:4], given.own).put(queue.engine)

    def attempt(caller: Wakes) -> Tried:
        one = Attempt(job, caller)
        known: Reply = NEW

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal known
            if once is None:
                return one(ctx)
            known = once.before(ctx)
            words = one(ctx) if known is NEW else None
            if words is None or one.id is None:
                return None  # another job has its dedup ID, which makes a repeated put safe
            return [once.words(ids.text(one.id)), *words]

        _, promise = run_unit(core, session.db, plan)
        if known is not NEW:
            return known, promise, None
        return NOT_YET if one.id is None else ids.text(one.id), promise, one.waits

    return _Putting(session, queue, attempt, given).begin()


def putmany(session: Session, given: Given, request: PutMany) -> Reply:
    """QUEUE PUTMANY"""
    queue, core, once = given.queue, session.core, given.once(session)
    due = queue.engine.due(request.job)
    values = next(iter(in_units(request.values[:BATCH_JOBS], len)))
    checked_payload(queue.options.name, values[0])  # another one as large is in no part with it
    check_writable(session)

    def attempt(caller: Wakes) -> Tried:
        many = AttemptMany(queue.engine, values, request.job, due, caller)

        def work(ctx: Context) -> Reply:
            if once is not None and (known := once.before(ctx)) is not NEW:
                return known
            put = many(ctx)
            if put == 0:
                return NOT_YET
            if once is not None and put is not NO_GROUP:
                once.note(ctx, put)
            return put

        reply, promise = core.run(session.db, work, None, False)
        while reply is NO_GROUP:
            create_later(queue.engine)
            reply, promise = core.run(session.db, work, None, False)
        if isinstance(reply, CommandError):
            session.rest_on(promise)
            raise reply
        return reply, promise, many.waits

    return _Putting(session, queue, attempt, given).begin()


class _Putting(BlockedCall):
    """A put that waits for room in a bounded queue."""

    def __init__(
        self, session: Session, queue: Served, attempt: Callable[[Wakes], Tried], given: Given
    ) -> None:
        found = given.own.get(b"BLOCK")
        self._waits = found is not None
        timeout_ms = 0 if found is None else parse_timeout(session, found[0])
        super().__init__(session.woke, session.deadline(timeout_ms))
        self._session, self._queue, self._attempt = session, queue, attempt
        self._caller: Caller | None = None

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        reply = self.look()
        return self if reply is NOT_YET else reply

    def look(self) -> Reply:
        """See `BlockedCall`."""
        self.forget()
        make = partial(Nudge, self) if self._waits else None
        reply, promise, self._caller = self._attempt(make)
        if reply is NOT_YET:
            return NOT_YET if self._waits else self.late()
        if promise is not None:
            self._session.rest_on(promise)
        return reply

    def next_look(self) -> float | None:
        """See `BlockedCall`. A plain XACK wakes no putter, so it looks now and then."""
        at = self._session.core.monotonic() + ROOM_SECONDS
        return at if self.deadline is None else min(at, self.deadline)

    def late(self) -> Reply:
        """See `BlockedCall`."""
        raise self._queue.engine.full()

    def forget(self) -> None:
        """See `BlockedCall`."""
        if self._caller is not None:
            self._queue.engine.known.room.pop(self._caller, None)
            self._caller = None
