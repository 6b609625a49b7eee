"""QUEUE CANCEL and MOVE: changes of delayed jobs; and FORGET."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.engine.api import Context
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.delayed import log_cancel, log_forget, log_move
from tidelog.server.commands.queue.given import ONE, TWO, Given, check_writable, checked, given_of
from tidelog.server.jobs import job_id
from tidelog.server.once import NEW
from tidelog.server.session import Session


def cancel(session: Session, args: list[bytes]) -> Reply:
    """QUEUE CANCEL name id [ONCE lane number] [option ...]: delete a delayed job. Replies 0 if it is not delayed."""
    given = given_of(session, args[2], args[4:], {b"ONCE": TWO})
    return _changed(session, given, partial(log_cancel, given.queue.engine, number=job_id(args[3])))


def move(session: Session, args: list[bytes]) -> Reply:
    """QUEUE MOVE name id DELAY ms | AT unix-ms [ONCE lane number] [option ...]: make a delayed job due at another time.

    Replies 0 if it is no delayed job any more.
    """
    own = {b"DELAY": ONE, b"AT": ONE, b"ONCE": TWO}
    given = given_of(session, args[2], args[4:], own)
    if b"DELAY" not in given.own and b"AT" not in given.own:
        raise CommandError(SYNTAX)
    change = partial(
        log_move, given.queue.engine, number=job_id(args[3]), due=given.due(given.job())
    )
    return _changed(session, given, change)


def forget(session: Session, args: list[bytes]) -> Reply:
    """QUEUE FORGET name id [ONCE lane number] [option ...]: free a dedup ID. Replies 0 if it was free."""
    given = given_of(session, args[2], args[4:], {b"ONCE": TWO})
    return _changed(session, given, partial(log_forget, given.queue.engine, dedup_id=args[3]))


def _changed(session: Session, given: Given, change: Callable[[Context], int]) -> Reply:
    """The reply of a change that logs its own effects, made once."""
    once = given.once(session)
    check_writable(session)

    def work(ctx: Context) -> Reply:
        if once is not None and (known := once.before(ctx)) is not NEW:
            return known
        changed = change(ctx)
        if once is not None:
            once.note(ctx, changed)
        return changed

    return checked(session, session.core.run(session.db, work, None, False))
