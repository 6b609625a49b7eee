"""TIDELOG HANDOVER: an owner that clients started gives the store to the process that asks (server/handover.py)."""

from __future__ import annotations

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.reply import OK, Reply
from tidelog.server.session import Session

_NO_OWNER = b"ERR this process does not hand over: an operator or a program has started it, so stop it there"
_ELSEWHERE = b"ERR HANDOVER is asked for on the socket in the directory of the store"


def handover(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG HANDOVER [KNOWN]: end, and pass the socket in the store's directory to the client; only an owner does.

    KNOWN    only say that this client knows the line that ends a connection then
    """
    server = session.server
    if len(args) > 3 or (len(args) == 3 and args[2].upper() != b"KNOWN"):
        raise CommandError(SYNTAX)
    if len(args) == 3:
        server.waiting.handover.knowing.add(session.id)
        return OK
    if not server.config.owner:
        raise CommandError(_NO_OWNER)
    if not server.listeners.pass_on(session.connection):
        raise CommandError(_ELSEWHERE)
    server.waiting.handover.begin()
    return OK
