"""MULTI, EXEC, DISCARD, WATCH, UNWATCH and SELECT: commands of the engine that change a session (spec 15, 16.1)."""

from __future__ import annotations

import inspect
from time import perf_counter_ns

from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int32
from tidelog.engine.reply import OK, Reply
from tidelog.engine.state import DATABASES
from tidelog.server.replies import NO_REPLY
from tidelog.server.session import Session
from tidelog.server.table import HANDLERS, TABLE, command


@command("multi", 1, "noscript loading stale fast allow_busy", categories="transaction")
def multi(session: Session, args: list[bytes]) -> Reply:
    reply = session.transaction.submit(session.core.ctx, args)
    session.settle()
    return reply


@command("exec", 1, "noscript loading stale skip_slowlog", categories="transaction")
def exec_(session: Session, args: list[bytes]) -> Reply:
    """One unit. What in it is no business of the engine, CLIENT or PUBLISH, is answered after it, in its order."""
    replies, later = session.exec(args)
    return _answer(session, replies, later) if later else replies


async def _answer(
    session: Session, replies: list[Reply], later: list[tuple[int, list[bytes]]]
) -> Reply:
    stats = session.server.stats
    session.in_exec = True
    try:
        for position, words in later:
            started = perf_counter_ns()
            command = TABLE.resolve(words)
            try:
                reply = HANDLERS[command.name](session, words)
                if inspect.isawaitable(reply):
                    reply = await reply
            except CommandError as error:
                reply = error
                stats.error(error.line)
            failed = isinstance(reply, CommandError)
            stats.call(command.name, perf_counter_ns() - started, failed)
            replies[position] = reply
    finally:
        session.in_exec = False
    return [reply for reply in replies if reply is not NO_REPLY]


@command("discard", 1, "noscript loading stale fast allow_busy", categories="transaction")
def discard(session: Session, args: list[bytes]) -> Reply:
    with session.core.lock:
        reply = session.transaction.submit(session.core.ctx, args)
    session.settle()
    return reply


@command(
    "watch", -2, "noscript loading stale fast allow_busy", (1, -1, 1), categories="transaction"
)
def watch(session: Session, args: list[bytes]) -> Reply:
    reply, claim = session.core.session(session.db, session.transaction, args)
    session.connection.rests_on(*claim)
    return reply


@command("unwatch", 1, "noscript loading stale fast allow_busy", categories="transaction")
def unwatch(session: Session, args: list[bytes]) -> Reply:
    reply, claim = session.core.session(session.db, session.transaction, args)
    session.connection.rests_on(*claim)
    return reply


@command("select", 2, "loading stale fast", categories="connection")
def select(session: Session, args: list[bytes]) -> Reply:
    db = int32(args[1])
    if not 0 <= db < DATABASES:
        raise CommandError(b"ERR DB index is out of range")
    session.db = db
    return OK
