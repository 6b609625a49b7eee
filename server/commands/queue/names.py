"""QUEUE LIST: the queues of a database."""

from __future__ import annotations

from tidelog.engine.reply import Reply
from tidelog.jobs.names import queue_names
from tidelog.server.commands.queue.given import told
from tidelog.server.session import Session


def names(session: Session, args: list[bytes]) -> Reply:
    """QUEUE LIST: [[name, group], ...] of the selected database, with the queues whose key the user may use."""
    found = told(session, queue_names(session.core, session.db))
    pairs = [[name.encode(), group.encode()] for name, group in found]
    return [pair for pair in pairs if session.sees(pair[0])]
