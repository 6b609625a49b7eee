"""KEYS, SCAN and RANDOMKEY, with the keys that the client may see (server/lists.py)."""

from __future__ import annotations

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.server import lists
from tidelog.server.session import Session


def keys(session: Session, args: list[bytes]) -> Reply:
    """KEYS pattern"""
    return _listed(session, b"keys", args)


def scan(session: Session, args: list[bytes]) -> Reply:
    """SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]"""
    return _listed(session, b"scan", args)


def randomkey(session: Session, args: list[bytes]) -> Reply:
    """RANDOMKEY"""
    return _listed(session, b"randomkey", args)


def _listed(session: Session, name: bytes, args: list[bytes]) -> Reply:
    def work(ctx: Context) -> Reply:
        return lists.decide(session.core, ctx, name, args, session.sees)

    reply, promise = session.core.run(session.db, work, None, False)
    session.rest_on(promise)
    if isinstance(reply, CommandError):
        raise reply
    return reply
