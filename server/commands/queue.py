"""QUEUE: the durable queue for clients in any language. Each subcommand runs the decision of the embedded queue.

A client that takes jobs names itself a worker. The jobs live while its connection does (server/jobs.py). It settles
each with the worker's name, the job's ID and its number of deliveries; together they fence late workers.

Values are bytes. The options of a queue are not stored, so each command may name them (`server.jobs.OPTIONS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.engine import ids
from tidelog.engine.api import Context, Waiter, next_id
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import NULL_ARRAY, OK, Map, Reply, Status
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.jobs import OPTIONS, QUEUES_MAX, Fences, Lent, Served, fences_of, job_id
from tidelog.server.once import NEW, Once
from tidelog.server.session import Session
from tidelog.server.wire.replies import Double, Jobs
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import SECONDS_MAX
from tidelog.store.queue import rows
from tidelog.store.queue.base import (
    BATCH_JOBS,
    BATCH_MAX,
    ROOM_SECONDS,
    Prepared,
    Put,
    lifetime,
    rows_of,
)
from tidelog.store.queue.job import JobBase, Settled
from tidelog.store.queue.names import queue_names
from tidelog.store.queue.options import PRIORITY_MAX
from tidelog.store.queue.rows import HEADER, VALUE, DeadJob, Failure
from tidelog.store.queue.streams import among_held
from tidelog.store.queue.units import in_units
from tidelog.store.queue.work.ends import log_finished
from tidelog.store.queue.work.fetch import AGAIN, DELIVERED, NEXT, NO_GROUP, Fetch
from tidelog.store.queue.work.later import Due, due_in, when
from tidelog.store.queue.work.leases import leases_of
from tidelog.store.queue.work.results import NONE, RESULT_SECONDS, Died, Found, Outcome
from tidelog.store.queue.work.retention import SWEEP_JOBS

PEEK: Final = 10  # jobs that PEEK shows unless it is told otherwise
PAGE: Final = 100  # failures and dead jobs, likewise
COUNT_MAX: Final = 10_000  # of each of them in one reply
_COUNT: Final = b"ERR COUNT must be between 1 and %d"
_NOT_TEXT: Final = b"ERR the name of a worker must be UTF-8, and not empty"
_XADD: Final = b"XADD"

# The number of words after each option; HEADERS says it itself.
_FLAG, _ONE, _TWO, _MANY = 0, 1, 2, -1
# The options of the commands that run for each job.
_WHEN: Final = {b"DELAY": _ONE, b"AT": _ONE, b"TTL": _ONE, b"PRIORITY": _ONE, b"KEY": _ONE}
_JOB: Final = {**_WHEN, b"DEDUP": _ONE, b"HEADERS": _MANY}  # the options of one job
_PUT: Final = {**_JOB, b"BLOCK": _ONE, b"ONCE": _TWO}
_SLOW: Final = frozenset((*_WHEN, b"DEDUP"))  # a put with one of these needs a decision of its own
_TAKE: Final = {
    **dict.fromkeys((b"COUNT", b"BLOCK", b"HEARTBEAT", b"LIMIT"), _ONE),
    b"HISTORY": _FLAG,
}
_DONE: Final = {b"ONCE": _TWO, b"RESULT": _ONE, b"RESULTTTL": _ONE}
# Parsed options are kept unless they are as long as this, or have one of these, whose values seldom come again.
_KEPT_BYTES_MAX: Final = 256
_UNKEPT: Final = frozenset((b"DEDUP", b"HEADERS", b"AT", b"KEY", b"RESULT"))


class Given(NamedTuple):
    """The options of one command: those of the queue, and its own with their words."""

    queue: Served
    own: dict[bytes, list[bytes]]

    def number(self, name: bytes, otherwise: int | None = None) -> int | None:
        """The value of an option that is an integer."""
        found = self.own.get(name)
        return otherwise if found is None else int64(found[0])

    def milliseconds(self, name: bytes) -> float | None:
        """The value of an option in milliseconds, above 0, as seconds; None if it was not given."""
        found = self.number(name)
        if found is not None and found <= 0:
            raise CommandError(b"ERR %b must be greater than 0" % name)
        return None if found is None else found / 1000

    def count(self, otherwise: int, most: int = COUNT_MAX) -> int:
        """COUNT."""
        found = self.number(b"COUNT", otherwise)
        if found is None or not 1 <= found <= most:
            raise CommandError(_COUNT % most)
        return found

    def due(self) -> Due | None:
        """DELAY or AT."""
        delay, at = self.number(b"DELAY"), self.number(b"AT")
        if delay is not None and at is not None:
            raise CommandError(SYNTAX)
        length = when(None if delay is None else delay / 1000, None)[0]
        return due_in(length, at, self.queue._store_ms())

    def ttl(self) -> int | None:
        """TTL."""
        return lifetime(self.milliseconds(b"TTL"))

    def priority(self) -> int:
        """PRIORITY."""
        found = self.number(b"PRIORITY", 0)
        if found is None or not 0 <= found <= PRIORITY_MAX:
            raise CommandError(b"ERR PRIORITY must be between 0 and %d" % PRIORITY_MAX)
        return found

    def key(self) -> str | None:
        """KEY."""
        found = self.own.get(b"KEY")
        try:
            key = None if found is None else found[0].decode()
        except UnicodeDecodeError:
            key = ""
        if key == "":
            raise CommandError(b"ERR KEY must be UTF-8, and not empty")
        return key

    def once(self) -> Once | None:
        """ONCE."""
        found = self.own.get(b"ONCE")
        return None if found is None else Once(*found)


def _given(session: Session, name: bytes, words: list[bytes], own: dict[bytes, int]) -> Given:
    """Parse the options at the end of a command. Raises CommandError."""
    shared: list[bytes] = []
    found: dict[bytes, list[bytes]] = {}
    at, end = 0, len(words)
    while at < end:
        option = words[at].upper()
        size = _ONE if option in OPTIONS else own.get(option)
        if size is None:
            raise CommandError(SYNTAX)
        at += 1
        if size == _MANY:
            size = 2 * int64(words[at]) if at < end else end
            at += 1
            if size < 0:
                raise CommandError(SYNTAX)
        if at + size > end:
            raise CommandError(SYNTAX)
        if option in OPTIONS:
            shared += (option, words[at])
        else:
            found[option] = words[at : at + size]
        at += size
    desk = session.server.desk
    return Given(desk.queue(session.core, session.db, name, tuple(shared)), found)


def _given_again(
    session: Session, verb: bytes, name: bytes, words: list[bytes], own: dict[bytes, int]
) -> Given:
    """As `_given`, for a command that a client repeats with the same options, apart from those of a last ONCE."""
    once = words[-2:] if len(words) > 2 and words[-3] == b"ONCE" else None
    kept = session.server.desk.given
    key = (verb, session.db, once is None, name, *(words if once is None else words[:-2]))
    known = kept.get(key)
    if known is not None:
        queue, options = known
        return Given(queue, options if once is None else {**options, b"ONCE": once})
    given = _given(session, name, words, own)
    options = dict(given.own)
    if once is not None:
        # The word in that place may also be the value of another option. It is not if ONCE was given, and only there.
        if options.pop(b"ONCE", None) is None or b"ONCE" in map(bytes.upper, words[:-3]):
            return given
    if _UNKEPT.isdisjoint(options) and sum(map(len, words)) < _KEPT_BYTES_MAX:
        if len(kept) >= QUEUES_MAX:
            kept.clear()
        kept[key] = given.queue, options
    return given


def _worker(word: bytes) -> bytes:
    try:
        if word.decode():
            return word
    except UnicodeDecodeError:
        pass
    raise CommandError(_NOT_TEXT)


def _told(session: Session, answer: Answer) -> Any:
    """The result of an answer; the reply waits for its promise."""
    found, promise = answer
    session.rest_on(promise)
    return found


def _may_write(session: Session) -> None:
    refusal = session.core.refusal
    if refusal is not None:
        raise CommandError(refusal)


def _headers(words: Iterable[bytes]) -> list[bytes]:
    row: list[bytes] = []
    for at, word in enumerate(words):
        row.append(word if at % 2 else HEADER + word)
    return row


# --- putting


def _put_of(given: Given, value: bytes) -> Put:
    priority = given.priority()
    headers = _headers(given.own.get(b"HEADERS", ()))
    row = (VALUE, value, *headers, *rows.tail_of(priority, given.key()))
    dedup = given.own.get(b"DEDUP")
    once = None if dedup is None else dedup[0]
    return Put(given.queue, row, once, given.due(), given.ttl(), priority)


def put(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PUT name value [DEDUP id] [HEADERS count name text ...] [DELAY ms | AT unix-ms] [TTL ms]
    [PRIORITY 0 to 9] [KEY text] [BLOCK ms] [ONCE lane number] [option ...]
    """
    given = _given_again(session, b"PUT", args[2], args[4:], _PUT)
    queue, core = given.queue, session.core
    once = given.once()
    _may_write(session)
    if queue.options.max_depth is None and _SLOW.isdisjoint(given.own):
        row = (VALUE, args[3], *_headers(given.own.get(b"HEADERS", ())))
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

        return _checked(session, core.run(session.db, work, None, False))
    found = _put_of(given, args[3])

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
            if found.due is None and queue._room(ctx, 1) <= 0:
                waits = queue._queue_up(caller)
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
    own = {**_WHEN, b"BLOCK": _ONE, b"ONCE": _TWO}
    given = _given(session, args[2], args[4 + count :], own)
    queue, core, once = given.queue, session.core, given.once()
    due, ttl, priority, key = given.due(), given.ttl(), given.priority(), given.key()
    values = next(iter(in_units(args[4 : 4 + min(count, BATCH_JOBS)], len)))
    _may_write(session)

    def attempt(caller: Callable[[], Caller] | None) -> tuple[Reply, Promise | None, Caller | None]:
        waits: Caller | None = None

        def work(ctx: Context) -> Reply:
            nonlocal waits
            if once is not None and (known := once.before(ctx)) is not NEW:
                return known
            if due is not None:
                room = len(values)
                if queue._log_put(ctx, due, rows_of(values, priority, key), ttl) is NO_GROUP:
                    return NO_GROUP
            else:
                room = queue._room(ctx, len(values))
                if room <= 0:
                    waits = queue._queue_up(caller)
                    return NOT_YET
                queue._log_values(ctx, values[:room], priority, key, ttl)
            if once is not None:
                once.note(ctx, room)
            return room

        reply, promise = core.run(session.db, work, None, False)
        while reply is NO_GROUP:
            queue._create_later()
            reply, promise = core.run(session.db, work, None, False)
        if isinstance(reply, CommandError):
            session.rest_on(promise)
            raise reply
        return reply, promise, waits

    return _Putting(session, queue, attempt, given).begin()


Attempt = Callable[[Callable[[], Caller] | None], tuple[Reply, Promise | None, Caller | None]]


class _Nudge(Caller):
    """Stands for a session among those that a queue wakes."""

    __slots__ = ("_call",)

    def __init__(self, call: BlockedCall) -> None:
        super().__init__()
        self._call = call

    def nudge(self) -> None:
        """See `Caller`."""
        self._call.nudge()


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
        make = partial(_Nudge, self) if self._waits else None
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
        raise self._queue._full()

    def forget(self) -> None:
        """See `BlockedCall`."""
        if self._caller is not None:
            self._queue._shared.room.pop(self._caller, None)
            self._caller = None


# --- taking


def take(session: Session, args: list[bytes]) -> Reply:
    """QUEUE TAKE name worker [COUNT n] [BLOCK ms] [HEARTBEAT ms] [LIMIT ms] [HISTORY] [option ...]

    Replies [[ID, deliveries, [field, value, ...]], ...], or null. BLOCK 0 waits for ever.

    HISTORY     the worker begins: first the jobs that an earlier connection of this worker left
    HEARTBEAT   take the jobs back unless QUEUE RENEW names them so often
    LIMIT       take them back after this time in any case
    """
    given = _given_again(session, b"TAKE", args[2], args[4:], _TAKE)
    _may_write(session)
    return _Taking(session, given, _worker(args[3])).begin()


class _Parked(BlockedCall):
    """A call that waits in the store's queue of waiters, which has its deadline."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.woke, None)
        self._session = session
        self._waiter: Waiter | None = None

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        raise NotImplementedError

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        """The reply for the outcome of a decision; NOT_YET: ask again."""
        raise NotImplementedError

    def _broke(self) -> None:
        """The decision failed, or the client will never see its outcome."""

    def look(self) -> Reply:
        """See `BlockedCall`."""
        waiter = self._waiter
        assert waiter is not None
        caller: Caller = waiter.owner
        if not caller.done:
            self._session.core.wake(waiter)
            if not caller.done:
                return NOT_YET
        self._waiter = None
        if caller.error is not None:
            self._broke()
            raise caller.error
        assert caller.answer is not None
        found = self._got(*caller.answer)
        if found is NOT_YET:
            found = self.begin()
            return NOT_YET if found is self else found
        return found

    def next_look(self) -> float | None:
        """See `BlockedCall`."""
        core = self._session.core
        seconds = None if self._waiter is None else core.waits.patience(self._waiter)
        return None if seconds is None else core.monotonic() + seconds

    def late(self) -> Reply:
        """See `BlockedCall`. CLIENT UNBLOCK ends the wait; what came just before is handed out."""
        assert self._waiter is not None
        self._session.core.dismiss(self._waiter)
        found = self.look()
        return NULL_ARRAY if found is NOT_YET else found

    def forget(self) -> None:
        """See `BlockedCall`."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._session.core.leave(waiter)
            if waiter.owner.done:
                self._broke()


class _Taking(_Parked):
    """A worker that waits for jobs."""

    def __init__(self, session: Session, given: Given, worker: bytes) -> None:
        super().__init__(session)
        self._queue, self._worker = given.queue, worker
        self._heartbeat = given.milliseconds(b"HEARTBEAT")
        self._limit = given.milliseconds(b"LIMIT")
        block = given.own.get(b"BLOCK")
        self._request = Fetch(
            *(given.queue._shared, given.queue.options, worker, given.count(1, BATCH_MAX)),
            None if block is None else parse_timeout(session, block[0]),
            {} if b"HISTORY" in given.own else None,
            self._limit,
        )

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        request, queue, core = self._request, self._queue, self._session.core
        make = None if request.timeout_ms is None else partial(_Nudge, self)
        while True:
            request.delivery, request.before = queue.delivery(self._worker), None
            try:
                reply, promise = core.run(self._session.db, request, make, False)
                if isinstance(reply, CommandError):
                    self._session.rest_on(promise)
                    raise reply
            except BaseException:
                self._broke()
                raise
            if reply.__class__ is Waiter:
                self._waiter = reply
                return self
            found = self._got(reply, promise)
            if found is not NOT_YET:
                return found

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        """The reply for the outcome of a fetch; NOT_YET: ask again."""
        request, queue, session = self._request, self._queue, self._session
        shared = queue._shared
        request.written()
        shared.made_room()
        if reply is NO_GROUP:
            queue._subscribe()
            return NOT_YET
        if reply is AGAIN:
            return NOT_YET
        session.rest_on(promise)
        if reply is not DELIVERED and reply is not NEXT:
            queue._sweep(1)  # the worker has nothing else to do
            return NULL_ARRAY
        delivery = request.delivery
        del request.delivery
        lent = Lent(delivery, self._heartbeat, self._limit)
        session.server.desk.hand(session, queue, lent)
        jobs = Jobs((ids.text(job), count, row) for job, row, count in reversed(delivery.jobs))
        delivery.jobs.clear()
        leases = leases_of(session.core)
        if not leases.armed:
            leases.arm()
        queue._sweep(SWEEP_JOBS)
        return jobs

    def _broke(self) -> None:
        """See `_Parked`. Jobs that came go back with their count."""
        shared = self._queue._shared
        self._request.failed()
        shared.stale()
        if self._request.delivery.shared.leave(self._request.delivery) is not None:
            leases_of(self._session.core).arm()


# --- settling


def done(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DONE name worker id deliveries [id deliveries ...] [RESULT value [RESULTTTL ms]] [ONCE lane number]
    [option ...]

    Replies how many of the jobs the worker still held. They are done. RESULT is for one job.
    """
    fences, rest = _fences(args)
    given = _given_again(session, b"DONE", args[2], rest, _DONE)
    if b"RESULT" in given.own or b"RESULTTTL" in given.own:
        return _done_with(session, given, args, fences)
    queue, core, once, worker = given.queue, session.core, given.once(), args[3]
    shared = queue._shared
    _may_write(session)
    held: list[int] = []

    def work(ctx: Context) -> Reply:
        if once is not None and (known := once.before(ctx)) is not NEW:
            return known
        for lane, options, some in queue.by_lane(fences):
            stream = ctx.stream(options.key)
            group = None if stream is None else stream.groups.get(options.group_key)
            if stream is not None and group is not None:
                here = list(dict.fromkeys(among_held(group, worker, some)))
                if here:
                    lane.fresh(ctx, options, stream, group)
                    log_finished(lane, options, ctx, stream, here)
                    held.extend(here)
        if once is not None:
            once.note(ctx, len(held))
        return len(held)

    try:
        reply = _checked(session, core.run(session.db, work, None, False))
    except BaseException:
        shared.stale()
        raise
    session.server.desk.settled(queue, [job for job, _ in fences])
    shared.made_room()
    queue._sweep(SWEEP_JOBS)
    return reply


def _done_with(session: Session, given: Given, args: list[bytes], fences: Fences) -> Reply:
    """One job is done, and has a result. Its delivery fences a repeated command, so ONCE is not needed."""
    result, ttl = given.own.get(b"RESULT"), given.milliseconds(b"RESULTTTL")
    if result is None or len(fences) > 1 or b"ONCE" in given.own:
        raise CommandError(b"ERR RESULT is for one job, without ONCE, and RESULTTTL needs RESULT")
    length = RESULT_SECONDS if ttl is None else ttl
    if length > SECONDS_MAX:
        raise CommandError(b"ERR RESULTTTL is out of range")
    return _settle(session, given, args, lambda job: job._acked_with(result[0], length))


def _fences(args: list[bytes]) -> tuple[Fences, list[bytes]]:
    """The jobs that a command names from its fifth word on, and the words behind them."""
    at = 4
    while at + 1 < len(args) and args[at][:1].isdigit():
        at += 2
    return fences_of(args[4:at]), args[at:]


def _checked(session: Session, answer: Answer) -> Reply:
    reply = _told(session, answer)
    if isinstance(reply, CommandError):
        raise reply
    return reply


def _settle(
    session: Session, given: Given, args: list[bytes], end: Callable[[JobBase], Settled]
) -> int:
    """End the delivery of the job that `args` names. Returns whether the worker still held it."""
    queue = given.queue
    job = queue.job(_worker(args[3]), job_id(args[4]), int64(args[5]))
    settled, promise = end(job)
    queue.end(job)
    if promise is not None:
        session.rest_on(promise)
    return int(settled)


def doneand(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DONEAND name worker id deliveries count [words name value ...] ... [option ...]

    The job is done and others are put, in one unit. Each of the `count` puts is the number of its words, then what
    QUEUE PUT takes: name, value, options of the job, and options of its queue. Replies 0 if the worker does not hold
    the job; then nothing is put.
    """
    puts: list[Put] = []
    at = 7
    for _ in range(int64(args[6])):
        size = int64(args[at]) if at < len(args) else 0
        words = args[at + 1 : at + 1 + size]
        if not 2 <= size == len(words):
            raise CommandError(SYNTAX)
        at += 1 + size
        put = _given(session, words[0], words[2:], _JOB)
        denied = session.server.commands.table.commands[b"queue|put"]
        refusal = session.server.acl.refusal(session.user, denied, [b"QUEUE", b"PUT", *words])
        if refusal is not None:
            raise refusal
        puts.append(_put_of(put, words[1]))
    given = _given(session, args[2], args[at:], {})
    return _settle(session, given, args, lambda job: job._done_and(puts))


def retry(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RETRY name worker id deliveries error [DELAY ms] [TRACE text] [option ...]

    The delivery failed: try again after a pause, or make it a dead job after the last delivery. Replies 0 if the worker
    does not hold the job.
    """
    given = _given(session, args[2], args[7:], {b"DELAY": _ONE, b"TRACE": _ONE})
    delay = given.number(b"DELAY")
    error, trace = _evidence(args[6], given)
    pause = None if delay is None else delay / 1000
    return _settle(session, given, args, lambda job: job._nacked(error, trace, pause))


def fail(session: Session, args: list[bytes]) -> Reply:
    """QUEUE FAIL name worker id deliveries error [TRACE text] [option ...]: it becomes a dead job at once."""
    given = _given(session, args[2], args[7:], {b"TRACE": _ONE})
    error, trace = _evidence(args[6], given)
    return _settle(session, given, args, lambda job: job._failed(error, trace))


def _evidence(error: bytes, given: Given) -> tuple[str, str]:
    trace = given.own.get(b"TRACE", [b""])[0]
    return rows.evidence_of(rows.shown(error), rows.shown(trace))


def release(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RELEASE name worker id deliveries [option ...]: give it back as if it had not been delivered."""
    given = _given(session, args[2], args[6:], {})
    return _settle(session, given, args, JobBase._release)


def extend(session: Session, args: list[bytes]) -> Reply:
    """QUEUE EXTEND name worker id deliveries ms [option ...]: keep the job, even if the connection ends."""
    given = _given(session, args[2], args[7:], {})
    length = int64(args[6]) / 1000
    desk, core = session.server.desk, session.core

    def end(job: JobBase) -> Settled:
        settled = job._extend(length)
        lent = desk.find(given.queue, args[3], job._number, job.deliveries)
        if settled[0] and lent is not None:
            lent.extend(core.monotonic(), length)
        return settled

    return _settle(session, given, args, end)


def renew(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RENEW name worker id deliveries [id deliveries ...] [HEARTBEAT ms] [option ...]

    The worker lives. Replies the IDs of the jobs that it still holds. Jobs that an earlier server lent are lent to this
    connection.
    """
    fences, rest = _fences(args)
    given = _given(session, args[2], rest, {b"HEARTBEAT": _ONE})
    _may_write(session)
    beat = given.milliseconds(b"HEARTBEAT")
    return list(map(ids.text, given.queue.renew(session, _worker(args[3]), fences, beat)))


def drop(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DROP name worker id deliveries [id deliveries ...] [option ...]

    The worker dropped these jobs unsettled. They are delivered again when their lease is over. Replies how many it
    held.
    """
    fences, rest = _fences(args)
    return _given(session, args[2], rest, {}).queue.drop(_worker(args[3]), fences)


# --- results


def result(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RESULT name id [BLOCK ms] [option ...]: what the worker of a job gave to QUEUE DONE.

    Replies [DONE, value]; [DEAD, ID of the dead job, reason]; [NONE] if the job has ended and left no result; or null
    if it has not ended in time. BLOCK 0 waits for ever.
    """
    given = _given(session, args[2], args[4:], {b"BLOCK": _ONE})
    return _Asking(session, given, job_id(args[3])).begin()


class _Asking(_Parked):
    """A client that waits for a result."""

    def __init__(self, session: Session, given: Given, job: int) -> None:
        super().__init__(session)
        queue, block = given.queue, given.own.get(b"BLOCK")
        self._blocks = block is not None
        timeout_ms = None if block is None else parse_timeout(session, block[0])
        results = queue._shared.results
        self._question = Outcome(session.core, results, queue.options, job, timeout_ms)

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        core = self._session.core
        make = partial(_Nudge, self) if self._blocks else None
        reply, promise = core.run(self._session.db, self._question, make, False)
        if reply.__class__ is Waiter:
            self._waiter = reply
            return self
        return self._got(reply, promise)

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        self._session.rest_on(promise)
        if isinstance(reply, CommandError):
            raise reply
        if isinstance(reply, Found):
            return [b"DONE", reply.value]
        if isinstance(reply, Died):
            reason = rows.fields_of(reply.row).get(b"reason", b"")
            return [b"DEAD", ids.text(reply.entry), reason]
        return [b"NONE"] if reply == NONE else NULL_ARRAY


# --- delayed jobs


def cancel(session: Session, args: list[bytes]) -> Reply:
    """QUEUE CANCEL name id [ONCE lane number] [option ...]: delete a delayed job. Replies 0 if it is none any more."""
    given = _given(session, args[2], args[4:], {b"ONCE": _TWO})
    return _changed(session, given, partial(given.queue._log_cancel, number=job_id(args[3])))


def move(session: Session, args: list[bytes]) -> Reply:
    """QUEUE MOVE name id DELAY ms | AT unix-ms [ONCE lane number] [option ...]: make a delayed job due at another time.

    Replies 0 if it is no delayed job any more.
    """
    own = {b"DELAY": _ONE, b"AT": _ONE, b"ONCE": _TWO}
    given = _given(session, args[2], args[4:], own)
    if b"DELAY" not in given.own and b"AT" not in given.own:
        raise CommandError(SYNTAX)
    change = partial(given.queue._log_move, number=job_id(args[3]), due=given.due())
    return _changed(session, given, change)


def _changed(session: Session, given: Given, change: Callable[[Context], int]) -> Reply:
    """The reply of a change that logs its own effects, made once."""
    once = given.once()
    _may_write(session)

    def work(ctx: Context) -> Reply:
        if once is not None and (known := once.before(ctx)) is not NEW:
            return known
        changed = change(ctx)
        if once is not None:
            once.note(ctx, changed)
        return changed

    return _checked(session, session.core.run(session.db, work, None, False))


# --- looking


def subscribe(session: Session, args: list[bytes]) -> Reply:
    """QUEUE SUBSCRIBE name [option ...]: create the group."""
    session.rest_on(_given(session, args[2], args[3:], {}).queue._subscribe())
    return OK


def length(session: Session, args: list[bytes]) -> Reply:
    """QUEUE LEN name [option ...]: jobs that are not done."""
    return _told(session, _given(session, args[2], args[3:], {}).queue._depth())


def stats(session: Session, args: list[bytes]) -> Reply:
    """QUEUE STATS name [option ...]"""
    found = _told(session, _given(session, args[2], args[3:], {}).queue._stats()).as_dict()
    reply = Map()
    for name, value in found.items():
        reply += name.encode(), _figure(value)
    return reply


def _figure(value: Any) -> Reply:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return Double(value)
    if isinstance(value, dict):
        return Map(part for name, held in value.items() for part in (str(name).encode(), held))
    return value


def peek(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PEEK name [COUNT n] [SCHEDULED] [option ...]: the next jobs, [[ID, [field, value, ...]], ...].

    SCHEDULED shows the delayed jobs that are not due yet instead; the unix ms at which each is due follows its fields.
    """
    given = _given(session, args[2], args[3:], {b"COUNT": _ONE, b"SCHEDULED": _FLAG})
    scheduled = b"SCHEDULED" in given.own
    found = _told(session, given.queue._peek(given.count(PEEK), scheduled))
    return [[ids.text(job), list(row), due][: 2 + scheduled] for job, row, due in found if row]


def failures(session: Session, args: list[bytes]) -> Reply:
    """QUEUE FAILURES name [JOB id] [COUNT n] [option ...]: [[job, ms, worker, deliveries, error, traceback], ...]"""
    given = _given(session, args[2], args[3:], {b"COUNT": _ONE, b"JOB": _ONE})
    job = given.own.get(b"JOB")
    wanted = None if job is None else ids.text(job_id(job[0])).decode()
    found: list[Failure] = _told(session, given.queue._failures(wanted, given.count(PAGE)))
    return [
        [
            *(failure.job_id.encode(), rows.milliseconds(failure.at), failure.worker.encode()),
            *(failure.deliveries, rows.unshown(failure.error), rows.unshown(failure.traceback)),
        ]
        for failure in found
    ]


def purge(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PURGE name [option ...]: delete jobs that are not in flight, at most 1,000. Replies [how many, more]."""
    given = _given(session, args[2], args[3:], {})
    dropped, promise, more = given.queue._purge_some()
    session.rest_on(promise)
    return [dropped, int(more)]


def names(session: Session, args: list[bytes]) -> Reply:
    """QUEUE LIST: [[name, group], ...] of the selected database."""
    found = queue_names(session.server.desk.face(session.core, session.db))
    session.rest_on(session.core.look(_nothing)[1])
    return [[name.encode(), group.encode()] for name, group in found]


def _nothing(state: object) -> None:
    return None


# --- dead jobs


def dead(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DEAD name COUNT | LIST [start [count]] | REDRIVE id [id ...] | PURGE id [id ...]

    LIST replies [[ID, [field, value, ...]], ...] from the ID `start` on, `-` being the first. REDRIVE and PURGE reply
    how many of the jobs were dead. All groups of a queue share its dead jobs, so there are no options.
    """
    queue = _given(session, args[2], [], {}).queue
    verb, rest = args[3].upper(), args[4:]
    if verb == b"COUNT" and not rest:
        return _told(session, queue.dead_jobs._count())
    if verb == b"LIST" and len(rest) < 3:
        start = 0 if not rest or rest[0] == b"-" else job_id(rest[0])
        count = int64(rest[1]) if len(rest) > 1 else PAGE
        if not 1 <= count <= COUNT_MAX:
            raise CommandError(_COUNT % COUNT_MAX)
        jobs, _, promise = queue.dead_jobs._page(start, count)
        session.rest_on(promise)
        return [[job.id.encode(), list(job._row)] for job in jobs]
    if verb in (b"REDRIVE", b"PURGE") and rest:
        chosen: list[DeadJob] = []
        for word in dict.fromkeys(rest):
            found, promise = queue.dead_jobs._one(ids.text(job_id(word)).decode())
            session.rest_on(promise)
            if found is not None:
                chosen.append(found)
        change = queue.dead_jobs._redrive if verb == b"REDRIVE" else queue.dead_jobs._drop
        changed = 0
        for unit in in_units(chosen, lambda job: len(job.raw)):
            changed += int(_told(session, change(unit)))
        return changed
    raise CommandError(SYNTAX)


def help_(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


_HELP: Final = (
    b"QUEUE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"PUT <name> <value> [DEDUP <id>] [HEADERS <count> <name> <text> ...] [DELAY <ms> | AT <unix-ms>] [TTL <ms>]",
    b"    [BLOCK <ms>]",
    b"    Put a job; the reply is its ID.",
    b"PUTMANY <name> <count> <value> [<value> ...] [DELAY <ms> | AT <unix-ms>] [TTL <ms>] [BLOCK <ms>]",
    b"    Put several jobs as one unit; the reply is their number.",
    b"CANCEL <name> <id>",
    b"    Delete a delayed job.",
    b"MOVE <name> <id> DELAY <ms> | AT <unix-ms>",
    b"    Make a delayed job due at another time.",
    b"SCHEDULE ADD <name> <queue> <value> CRON <expression> [TZ <zone>] | EVERY <ms> [CATCHUP ONE | ALL | NONE]",
    b"    Put a job into a queue again and again.",
    b"SCHEDULE PAUSE | RESUME | REMOVE <name>",
    b"    Change a schedule; the reply is 0 if there is none.",
    b"SCHEDULES",
    b"    The schedules of the database.",
    b"TAKE <name> <worker> [COUNT <n>] [BLOCK <ms>] [HEARTBEAT <ms>] [LIMIT <ms>] [HISTORY]",
    b"    Get jobs, each as ID, number of deliveries, and fields.",
    b"DONE <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [RESULT <value> [RESULTTTL <ms>]]",
    b"    The jobs are done. A result is for one job.",
    b"RESULT <name> <id> [BLOCK <ms>]",
    b"    The result that the worker of a job gave.",
    b"DONEAND <name> <worker> <id> <deliveries> <count> [<words> <name> <value> ...] ...",
    b"    The job is done, and others are put in the same unit.",
    b"RETRY <name> <worker> <id> <deliveries> <error> [DELAY <ms>] [TRACE <text>]",
    b"    The delivery failed; the job is tried again later.",
    b"FAIL <name> <worker> <id> <deliveries> <error> [TRACE <text>]",
    b"    Give the job up; it becomes a dead job.",
    b"RELEASE <name> <worker> <id> <deliveries>",
    b"    Give the job back as if it had not been delivered.",
    b"EXTEND <name> <worker> <id> <deliveries> <ms>",
    b"    Keep the job for so long, even if the connection ends.",
    b"RENEW <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [HEARTBEAT <ms>]",
    b"    The worker lives; the reply lists the jobs that it still holds.",
    b"DROP <name> <worker> <id> <deliveries> [<id> <deliveries> ...]",
    b"    The worker dropped the jobs; they come back when their lease is over.",
    b"SUBSCRIBE <name>",
    b"    Create the group, so that it gets every job from now on.",
    b"LEN <name>",
    b"    The number of jobs that are not done.",
    b"STATS <name>",
    b"    Figures about the queue.",
    b"PEEK <name> [COUNT <n>] [SCHEDULED]",
    b"    The next jobs, or the delayed jobs that are not due yet, with their times; they are not delivered.",
    b"FAILURES <name> [JOB <id>] [COUNT <n>]",
    b"    Recorded failures, newest first.",
    b"DEAD <name> COUNT | LIST [<start> [<count>]] | REDRIVE <id> [<id> ...] | PURGE <id> [<id> ...]",
    b"    Dead jobs.",
    b"PURGE <name>",
    b"    Delete jobs that are not in flight; the reply tells whether there are more.",
    b"LIST",
    b"    Names and groups of all queues.",
    b"Every subcommand but LIST, DEAD, SCHEDULE and SCHEDULES takes the queue's options at its end: GROUP,",
    b"RETRYAFTER (ms), MAXDELIVERIES, MAXDEPTH, MAXFAILURES, CONCURRENCY, CONCURRENCYPERKEY, RATE (<jobs>/s, m, h or",
    b"d), KEEP (jobs), KEEPMS, CODEC (its name is kept with dead jobs).",
    b"HELP",
    b"    Print this help.",
)
