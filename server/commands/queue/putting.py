"""QUEUE PUT and PUTMANY."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import Context, next_id
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import ROOM_SECONDS
from tidelog.jobs.job_options import JOB, JobOptions, headers_in
from tidelog.jobs.putting import (
    BATCH_JOBS,
    Prepared,
    Put,
    create_later,
    log_put_delayed,
    log_values,
    rows_of,
)
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
    given_of,
)
from tidelog.server.commands.queue.waiting import Nudge
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.jobs import Served
from tidelog.server.once import NEW
from tidelog.server.session import Session
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.durability import Promise

_XADD: Final = b"XADD"
# A put with one of these needs a decision of its own.
_SLOW: Final = frozenset(JOB) - {b"HEADERS"}


def put(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PUT name value [DEDUP id [MODE WINDOW | UNTIL-DONE | REPLACE]] [HEADERS count name text ...]
    [DELAY ms | AT unix-ms] [TTL ms] [PRIORITY 0 to 9] [KEY text] [BLOCK ms] [ONCE lane number] [option ...]
    """
    given = given_again(session, b"PUT", args[2], args[4:], PutJob.options)
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

        def work(ctx: Context) -> Reply:
            reply = once.before(ctx)
            if reply is NEW:
                reply = core.decide_words(ctx, [_XADD, args[2], b"*", *row])
                once.note(ctx, reply)
            return reply

        return checked(session, core.run(session.db, work, None, False))
    found = put_of(given, args[3])

    def attempt(caller: Callable[[], Caller] | None) -> tuple[Reply, Promise | None, Caller | None]:
        waits: Caller | None = None
        earlier: Reply = NEW

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal waits, earlier
            earlier = NEW if once is None else once.before(ctx)
            if earlier is not NEW:
                return None
            known = found.known(ctx)
            if known is not None:  # its dedup ID makes a repeated put safe
                earlier = ids.text(known)
                return None
            if found.due is None and queue.engine.room(ctx, 1) + found.makes_room(ctx) <= 0:
                waits = queue.engine.queue_up(caller)
                return None
            prepared = Prepared()
            words = found.words(ctx, prepared)
            made = found.made(prepared)
            if made is not None:
                earlier = ids.text(made)  # the reply of the last command is not the ID
            if once is None:
                return words
            if made is None:
                stream = ctx.stream(args[2])
                made = next_id(0 if stream is None else stream.last_id, ctx.now)
            return [once.words(ids.text(made)), *words]

        reply, promise = run_unit(core, session.db, plan)
        if earlier is not NEW:
            return earlier, promise, None
        return NOT_YET if reply is None else reply[-1], promise, waits

    return _Putting(session, queue, attempt, given).begin()


def putmany(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PUTMANY name count value [value ...] [DELAY ms | AT unix-ms] [TTL ms] [PRIORITY 0 to 9]
    [KEY text] [BLOCK ms] [ONCE lane number] [option ...]

    Replies how many were put, in one unit: fewer than given if a bounded queue had no room for all, or if they are more
    than a unit holds.
    """
    count = int64(args[3])
    if not 1 <= count <= len(args) - 4:
        raise CommandError(b"ERR the number of values must be at least 1 and not above those given")
    given = given_of(session, args[2], args[4 + count :], PutMany.options)
    queue, core, once = given.queue, session.core, given.once(session)
    job = JobOptions.parse(given.own)
    due = given.due(job)
    values = next(iter(in_units(args[4 : 4 + min(count, BATCH_JOBS)], len)))
    checked_payload(queue.options.name, values[0])  # another one as large is in no part with it
    check_writable(session)

    def attempt(caller: Callable[[], Caller] | None) -> tuple[Reply, Promise | None, Caller | None]:
        waits: Caller | None = None

        def work(ctx: Context) -> Reply:
            nonlocal waits
            if once is not None and (known := once.before(ctx)) is not NEW:
                return known
            if due is not None:
                room = len(values)
                rows = rows_of(values, job)
                if log_put_delayed(queue.engine, ctx, due, rows, job.ttl_ms) is NO_GROUP:
                    return NO_GROUP
            else:
                room = queue.engine.room(ctx, len(values))
                if room <= 0:
                    waits = queue.engine.queue_up(caller)
                    return NOT_YET
                log_values(queue.engine, ctx, values[:room], job)
            if once is not None:
                once.note(ctx, room)
            return room

        reply, promise = core.run(session.db, work, None, False)
        while reply is NO_GROUP:
            create_later(queue.engine)
            reply, promise = core.run(session.db, work, None, False)
        if isinstance(reply, CommandError):
            session.rest_on(promise)
            raise reply
        return reply, promise, waits

    return _Putting(session, queue, attempt, given).begin()


def put_of(given: Given, value: bytes) -> Put:
    checked_payload(given.queue.options.name, value)
    job = JobOptions.parse(given.own)
    return Put(given.queue.engine, job.row(value), job, given.due(job))


Attempt = Callable[[Callable[[], Caller] | None], tuple[Reply, Promise | None, Caller | None]]


class _Putting(BlockedCall):
    """A put that waits for room in a bounded queue."""

    def __init__(self, session: Session, queue: Served, attempt: Attempt, given: Given) -> None:
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
            self._queue.engine.shared.room.pop(self._caller, None)
            self._caller = None
