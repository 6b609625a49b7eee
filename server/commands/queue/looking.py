"""QUEUE SUBSCRIBE, LEN, STATS, PEEK, FAILURES, PURGE and LIST: a queue as a whole."""

from __future__ import annotations

from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.reply import OK, Map, Reply
from tidelog.jobs import looking, rows
from tidelog.jobs.names import queue_names
from tidelog.jobs.purging import purge_some
from tidelog.jobs.rows import Failure
from tidelog.server.commands.queue.given import FLAG, ONE, given_of, told
from tidelog.server.jobs import job_id
from tidelog.server.session import Session
from tidelog.server.wire.replies import Double

PEEK: Final = 10  # jobs that PEEK shows unless it is told otherwise
PAGE: Final = 100  # failures, likewise


def subscribe(session: Session, args: list[bytes]) -> Reply:
    """QUEUE SUBSCRIBE name [option ...]: create the group."""
    session.rest_on(given_of(session, args[2], args[3:], {}).queue.engine.subscribe())
    return OK


def length(session: Session, args: list[bytes]) -> Reply:
    """QUEUE LEN name [option ...]: jobs that are not done."""
    return told(session, looking.depth(given_of(session, args[2], args[3:], {}).queue.engine))


def stats(session: Session, args: list[bytes]) -> Reply:
    """QUEUE STATS name [option ...]"""
    given = given_of(session, args[2], args[3:], {})
    found = told(session, looking.stats(given.queue.engine)).as_dict()
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
    given = given_of(session, args[2], args[3:], {b"COUNT": ONE, b"SCHEDULED": FLAG})
    scheduled = b"SCHEDULED" in given.own
    found = told(session, looking.peek(given.queue.engine, given.count(PEEK), scheduled))
    return [[ids.text(job), list(row), due][: 2 + scheduled] for job, row, due in found if row]


def failures(session: Session, args: list[bytes]) -> Reply:
    """QUEUE FAILURES name [JOB id] [COUNT n] [option ...]: [[job, ms, worker, deliveries, error, traceback], ...]"""
    given = given_of(session, args[2], args[3:], {b"COUNT": ONE, b"JOB": ONE})
    job = given.own.get(b"JOB")
    wanted = None if job is None else ids.text(job_id(job[0])).decode()
    found: list[Failure] = told(
        session, looking.failures(given.queue.engine, wanted, given.count(PAGE))
    )
    return [
        [
            *(failure.job_id.encode(), rows.milliseconds(failure.at), failure.worker.encode()),
            *(failure.deliveries, rows.unshown(failure.error), rows.unshown(failure.traceback)),
        ]
        for failure in found
    ]


def purge(session: Session, args: list[bytes]) -> Reply:
    """QUEUE PURGE name [option ...]: delete jobs that are not in flight, at most 1,000. Replies [how many, more]."""
    given = given_of(session, args[2], args[3:], {})
    dropped, promise, more = purge_some(given.queue.engine)
    session.rest_on(promise)
    return [dropped, int(more)]


def names(session: Session, args: list[bytes]) -> Reply:
    """QUEUE LIST: [[name, group], ...] of the selected database, with the queues whose key the user may use."""
    found = told(session, queue_names(session.core, session.db))
    pairs = [[name.encode(), group.encode()] for name, group in found]
    return [pair for pair in pairs if session.sees(pair[0])]
