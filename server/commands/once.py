"""TIDELOG ONCE: a write that a client can repeat after it lost the reply (server/once.py)."""

from __future__ import annotations

from functools import partial

from tidelog.engine.api import TABLE as ENGINE
from tidelog.engine.api import Command, Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.server import reserved
from tidelog.server.once import NOTHING, Once
from tidelog.server.session import Session


def once(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG ONCE series number command [arg ...]: run a write of the engine, unless the series has this number
    already.

    Replies as the command does. A command that was refused takes no number.
    """
    numbered, words, core = Once(session.user, args[2], args[3]), args[4:], session.core
    command = session.server.commands.table.resolve(words)
    known = command.name in ENGINE.commands
    if not known or "write" not in command.flags or "blocking" in command.flags:
        raise CommandError(b"ERR '%b' cannot be numbered: it is no plain write" % command.name)
    nothing = words == NOTHING
    refusal = None if nothing else _refusal(session, command, words)
    if refusal is not None:
        raise refusal

    def decision(ctx: Context) -> Reply:
        return 0 if nothing else core.decide_words(ctx, words)

    reply, promise = core.run(session.db, partial(numbered.decided, decision), None, False)
    session.rest_on(promise)
    return reply


def _refusal(session: Session, command: Command, words: list[bytes]) -> CommandError | None:
    found = session.server.acl.refusal(session.user, command, words)
    if found is None and session.guarded:
        return reserved.refusal(command, words)
    return found
