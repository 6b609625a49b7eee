"""QUEUE DEAD: the dead jobs of a queue."""

from __future__ import annotations

from typing import Final

from tidelog.engine import ids
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.units import in_units
from tidelog.server.commands.queue.given import COUNT_MAX, WRONG_COUNT, given_of, told
from tidelog.server.jobs import job_id
from tidelog.server.session import Session

PAGE: Final = 100  # jobs that LIST shows unless it is told otherwise


def dead(session: Session, args: list[bytes]) -> Reply:
    """QUEUE DEAD name COUNT | LIST [start [count]] | REDRIVE id [id ...] | PURGE id [id ...]

    LIST replies [[ID, [field, value, ...]], ...] from the ID `start` on, `-` being the first. REDRIVE and PURGE reply
    how many of the jobs were dead. All groups of a queue share its dead jobs, so there are no options.
    """
    queue = given_of(session, args[2], [], {}).queue
    verb, rest = args[3].upper(), args[4:]
    if verb == b"COUNT" and not rest:
        return told(session, queue.dead_jobs._count())
    if verb == b"LIST" and len(rest) < 3:
        start = 0 if not rest or rest[0] == b"-" else job_id(rest[0])
        count = int64(rest[1]) if len(rest) > 1 else PAGE
        if not 1 <= count <= COUNT_MAX:
            raise CommandError(WRONG_COUNT % COUNT_MAX)
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
            changed += int(told(session, change(unit)))
        return changed
    raise CommandError(SYNTAX)
