"""A worker ends deliveries, or keeps them: QUEUE DONE, DONEAND, RETRY, FAIL, RELEASE, EXTEND, CONFIRM, RENEW, DROP.

QUEUE UNBLOCK ends its wait for a job. QUEUE CANCEL ends a job, also one that a worker holds.
"""

from __future__ import annotations

from functools import partial

from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.job_options import JOB
from tidelog.jobs.own import TWO, Own, job_id
from tidelog.jobs.putting import Put
from tidelog.jobs.settling import settled
from tidelog.jobs.units import checked_payload
from tidelog.jobs.verbs.cancel import Cancel
from tidelog.jobs.verbs.confirm import Confirm
from tidelog.jobs.verbs.done import ONE_RESULT, Done, DoneWith
from tidelog.jobs.verbs.done_and import AckAnd, DoneAnd
from tidelog.jobs.verbs.drop import Drop
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.renew import Renew
from tidelog.jobs.verbs.unblock import Unblock
from tidelog.jobs.work.retention import SWEEP_JOBS
from tidelog.server.commands.queue.asking import changed
from tidelog.server.commands.queue.given import (
    Given,
    check_put,
    check_writable,
    checked,
    given_of,
    worker_of,
)
from tidelog.server.once import NEW
from tidelog.server.session import Session
from tidelog.server.table import Handler


def done(session: Session, given: Given, request: Done) -> Reply:
    """QUEUE DONE. Replies how many of the jobs the worker still held."""
    worker, fences = request.worker, request.fences
    if b"RESULT" in given.own or b"RESULTTTL" in given.own:
        if len(fences) > 1:
            raise CommandError(ONE_RESULT)
        with_result = DoneWith.parse([], given.own)
        checked_payload(given.queue.options.name, with_result.data)
        return _settle(session, given, worker, *fences[0], with_result)
    queue = given.queue
    check_writable(session)
    found = [queue.named(session, worker, *fence) for fence in fences]
    mine = [fence[0] for fence, lent in zip(fences, found, strict=True) if lent]
    if False in found:
        fences = [fence for fence, lent in zip(fences, found, strict=True) if lent is not False]
        if not fences:
            return 0
        request = Done(worker, fences)
    try:
        reply = changed(session, given, request)
    except BaseException:
        queue.engine.known.stale()
        raise
    session.server.desk.settled(queue, mine)
    queue.engine.known.made_room()
    queue.engine.sweep(SWEEP_JOBS)
    return reply


def _settle(
    session: Session, given: Given, worker: bytes, job: int, count: int, request: Ending
) -> int:
    """End or keep the delivery of a job. Returns whether the worker still held it."""
    queue, worker = given.queue, worker_of(worker)
    lent = queue.named(session, worker, job, count)
    if lent is False:
        return 0
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
    """QUEUE DONEAND. Replies 0 if the worker does not hold the job; then nothing is put."""
    end = 6 + AckAnd.placed(args[6:])
    puts: list[Put] = []
    for words in AckAnd.parse(args[6:end], Own()).puts:
        put = given_of(session, words[0], words[2:], JOB)
        check_put(session, words)
        puts.append(PutJob.parse(words[1:2], put.own).put(put.queue.engine))
    given = given_of(session, args[2], args[end:], {})
    return _settle(session, given, *_fence(args), DoneAnd.of(given.queue.engine, puts))


def _fence(args: list[bytes]) -> tuple[bytes, int, int]:
    """The worker, the job, and the number of its delivery. Raises CommandError."""
    return args[3], job_id(args[4]), int64(args[5])


def handler(verb: type[Ending]) -> Handler[Session]:
    """The handler of a verb about one delivery: QUEUE <verb> name worker id deliveries ... [option ...]

    Replies 0 if the worker does not hold the job.
    """
    return partial(_end, verb)


def _end(verb: type[Ending], session: Session, args: list[bytes]) -> Reply:
    places = 6 + verb.places
    given = given_of(session, args[2], args[places:], verb.options)
    return _settle(session, given, *_fence(args), verb.parse(args[6:places], given.own))


def release(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RELEASE. It may have a number: when it is repeated, its fence may be that of the next delivery, too."""
    given, core = given_of(session, args[2], args[6:], {b"ONCE": TWO}), session.core
    once = given.once(session)
    if once is None:
        return _settle(session, given, *_fence(args), Release())
    check_writable(session)
    known = checked(session, core.run(session.db, once.before, None, False))
    if known is not NEW:
        return known
    numbered = partial(once.decided, lambda ctx: 0)  # that it did nothing is remembered, too
    return _settle(session, given, *_fence(args), Release((once.words(1),))) or checked(
        session, core.run(session.db, numbered, None, False)
    )


def renew(session: Session, given: Given, request: Renew) -> Reply:
    """QUEUE RENEW. Jobs that an earlier server lent are lent to this connection."""
    check_writable(session)
    worker_of(request.worker)
    return request.reply(given.queue.renew(session, request))


def confirm(session: Session, given: Given, request: Confirm) -> Reply:
    """QUEUE CONFIRM: from now on the delivery of the jobs counts, whatever happens to the connection."""
    return int(given.queue.confirm(session, request.worker, *request.fences[0]))


def unblock(session: Session, given: Given, request: Unblock) -> Reply:
    """QUEUE UNBLOCK. The call gets what came just before; if it comes later, it does not wait."""
    return int(session.server.desk.unblock((*given.queue.place[:2], request.token)))


def cancel(session: Session, given: Given, request: Cancel) -> Reply:
    """QUEUE CANCEL. A worker of this process learns it at once, a client when it renews or settles the job."""
    check_writable(session)
    decision = request.decision(given.queue.engine)
    return decision.asked(lambda: changed(session, given, request, decision))


def drop(session: Session, given: Given, request: Drop) -> Reply:
    """QUEUE DROP."""
    worker_of(request.worker)
    return given.queue.drop(session, request)
