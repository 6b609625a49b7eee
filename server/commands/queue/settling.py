"""A worker ends deliveries, or keeps them: QUEUE DONE, DONEAND, RETRY, FAIL, RELEASE, EXTEND, CONFIRM, RENEW, DROP.

QUEUE UNBLOCK ends its wait for a job.
"""

from __future__ import annotations

from functools import partial

from tidelog.engine import ids
from tidelog.engine.api import Context
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.job_options import JOB
from tidelog.jobs.own import job_id
from tidelog.jobs.putting import Put
from tidelog.jobs.settling import settled
from tidelog.jobs.streams import among_held
from tidelog.jobs.units import checked_payload
from tidelog.jobs.verbs.done import ONE_RESULT, Done, DoneWith
from tidelog.jobs.verbs.done_and import DoneAnd
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.renew import Renew
from tidelog.jobs.work.ends import log_finished
from tidelog.jobs.work.retention import SWEEP_JOBS
from tidelog.server.commands.queue.given import (
    Given,
    check_put,
    check_writable,
    checked,
    given_again,
    given_of,
    worker_of,
)
from tidelog.server.commands.queue.putting import put_of
from tidelog.server.jobs import Fences, fences_of
from tidelog.server.once import NEW
from tidelog.server.session import Session
from tidelog.server.table import Handler


def done(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DONE name worker id deliveries [id deliveries ...] [RESULT value [RESULTTTL ms]] [ONCE lane number]
    [option ...]

    Replies how many of the jobs the worker still held. They are done. RESULT is for one job.
    """
    fences, rest = _fences(args)
    given = given_again(session, b"DONE", args[2], rest, Done.options)
    if b"RESULT" in given.own or b"RESULTTTL" in given.own:
        if len(fences) > 1:
            raise CommandError(ONE_RESULT)
        request = DoneWith.parse([], given.own)
        checked_payload(given.queue.options.name, request.data)
        return _settle(session, given, args, request)
    queue, core, once, worker = given.queue, session.core, given.once(session), args[3]
    shared = queue.engine.shared
    check_writable(session)
    mine = [job for job, count in fences if queue.named(session, worker, job, count) is not None]
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
        reply = checked(session, core.run(session.db, work, None, False))
    except BaseException:
        shared.stale()
        raise
    session.server.desk.settled(queue, mine)
    shared.made_room()
    queue.engine.sweep(SWEEP_JOBS)
    return reply


def _fences(args: list[bytes]) -> tuple[Fences, list[bytes]]:
    """The jobs that a command names from its fifth word on, and the words behind them."""
    at = 4
    while at + 1 < len(args) and args[at][:1].isdigit():
        at += 2
    return fences_of(args[4:at]), args[at:]


def _settle(session: Session, given: Given, args: list[bytes], request: Ending) -> int:
    """End or keep the delivery of the job that `args` names. Returns whether the worker still held it."""
    queue, worker = given.queue, worker_of(args[3])
    job, count = job_id(args[4]), int64(args[5])
    lent = queue.named(session, worker, job, count)
    held, promise = settled(queue.engine, *queue.held(session, worker, job, count, lent), request)
    if lent is not None:
        if not held or request.end is not OPEN:
            session.server.desk.settled(queue, (job,))
        elif isinstance(request, Extend):
            lent.extend(session.core.monotonic(), request.length)
    if promise is not None:
        session.rest_on(promise)
    return int(held)


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
        put = given_of(session, words[0], words[2:], JOB)
        check_put(session, words)
        puts.append(put_of(put, words[1]))
    given = given_of(session, args[2], args[at:], {})
    return _settle(session, given, args, DoneAnd.of(given.queue.engine, puts))


def handler(verb: type[Ending]) -> Handler[Session]:
    """The handler of a verb about one delivery: QUEUE <verb> name worker id deliveries ... [option ...]

    Replies 0 if the worker does not hold the job.
    """
    return partial(_end, verb)


def _end(verb: type[Ending], session: Session, args: list[bytes]) -> Reply:
    places = 6 + verb.places
    given = given_of(session, args[2], args[places:], verb.options)
    return _settle(session, given, args, verb.parse(args[6:places], given.own))


def renew(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RENEW name worker id deliveries [id deliveries ...] [HEARTBEAT ms] [option ...]

    The worker lives. Replies the IDs of the jobs that it still holds. Jobs that an earlier server lent are lent to this
    connection.
    """
    fences, rest = _fences(args)
    given = given_of(session, args[2], rest, Renew.options)
    check_writable(session)
    beat = given.own.milliseconds(b"HEARTBEAT")
    return list(map(ids.text, given.queue.renew(session, worker_of(args[3]), fences, beat)))


def confirm(session: Session, args: list[bytes]) -> Reply:
    """QUEUE CONFIRM name worker id deliveries [option ...]: a handler begins with the jobs of its TAKE.

    From now on their delivery counts, whatever happens to the connection. Replies 0 if the worker does not hold it.
    """
    queue = given_again(session, b"CONFIRM", args[2], args[6:], {}).queue
    return int(queue.named(session, args[3], job_id(args[4]), int64(args[5])) is not None)


def unblock(session: Session, args: list[bytes]) -> Reply:
    """QUEUE UNBLOCK name token [option ...]: end the TAKE that waits with this token, as if its time were up.

    It gets what came just before. Replies 0 if no such call waits; if it comes later, it does not wait.
    """
    queue = given_of(session, args[2], args[4:], {}).queue
    return int(session.server.desk.unblock((*queue.place[:2], args[3])))


def drop(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DROP name worker id deliveries [id deliveries ...] [option ...]

    The worker dropped these jobs unsettled. They are delivered again when their lease is over. Replies how many it
    held.
    """
    fences, rest = _fences(args)
    return given_of(session, args[2], rest, {}).queue.drop(worker_of(args[3]), fences)
