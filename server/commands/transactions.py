"""MULTI, EXEC, DISCARD, WATCH, UNWATCH and SELECT: commands of the engine that change a session (spec 15, 16.1)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from time import perf_counter_ns

from tidelog.engine.api import DATABASES
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int32
from tidelog.engine.reply import OK, Reply
from tidelog.server.session import Session
from tidelog.server.wire.replies import NO_REPLY


def multi(session: Session, args: list[bytes]) -> Reply:
    reply = session.transaction.submit(session.core.landing.ctx, args)
    session.queued_change = False
    session.settle()
    return reply


def exec_(session: Session, args: list[bytes]) -> Reply:
    """EXEC: run the engine's commands as one unit, then the server's own (CLIENT, PUBLISH, ...) in their order."""
    replies, later = session.exec(args)
    if not later:
        return replies
    session.in_exec = True
    try:
        for at, (position, words) in enumerate(later):
            reply = _answer(session, words)
            if inspect.isawaitable(reply):
                return _rest(session, replies, reply, later[at:])
            replies[position] = reply
    finally:
        session.in_exec = False
    return _told(session, replies)


async def _rest(
    session: Session,
    replies: list[Reply],
    first: Awaitable[Reply],
    later: list[tuple[int, list[bytes]]],
) -> Reply:
    """Run the remaining handlers, beginning with the first one that awaits."""
    session.in_exec = True
    try:
        for position, words in later:
            reply: Reply = first if words is later[0][1] else _answer(session, words)
            if inspect.isawaitable(reply):
                try:
                    reply = await reply
                except Exception as error:
                    reply = session.refused(session.server.commands.table.resolve(words), error)
            replies[position] = reply
    finally:
        session.in_exec = False
    return _told(session, replies)


def _answer(session: Session, words: list[bytes]) -> Reply:
    """Run one handler. Return its reply, or an awaitable for it."""
    commands = session.server.commands
    started = perf_counter_ns()
    command = commands.table.resolve(words)
    try:
        reply = commands.handlers[command.name](session, words)
    except Exception as error:
        reply = session.refused(command, error)
        session.server.stats.error(reply.line)
    session.ran(command, words, started, isinstance(reply, CommandError))
    return reply


def _told(session: Session, replies: list[Reply]) -> Reply:
    told = [reply for reply in replies if reply is not NO_REPLY]
    return session.last_reply(told) if session.ending else told


def discard(session: Session, args: list[bytes]) -> Reply:
    with session.core.lock:
        reply = session.transaction.submit(session.core.landing.ctx, args)
    session.settle()
    return reply


def watch(session: Session, args: list[bytes]) -> Reply:
    reply, promise = session.core.session(session.db, session.transaction, args)
    session.connection.rests_on(*promise)
    return reply


def unwatch(session: Session, args: list[bytes]) -> Reply:
    reply, promise = session.core.session(session.db, session.transaction, args)
    session.connection.rests_on(*promise)
    return reply


def select(session: Session, args: list[bytes]) -> Reply:
    db = int32(args[1])
    if not 0 <= db < DATABASES:
        raise CommandError(b"ERR DB index is out of range")
    session.db = db
    return OK
