"""TIDELOG CAPABILITIES: what a client may use here that servers of earlier versions do not have."""

from __future__ import annotations

from typing import Final

from tidelog.engine.reply import Reply
from tidelog.server.session import Session

# confirm    QUEUE TAKE with CONFIRM, QUEUE CONFIRM and UNBLOCK
CAPABILITIES: Final = (b"confirm",)


def capabilities(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG CAPABILITIES: their names. A server of version 0.1 does not know the command, and has none."""
    return list(CAPABILITIES)
