"""TIDELOG SNAPSHOT: publish a portable snapshot of the store, for clients on any machine."""

from __future__ import annotations

from tidelog.engine.reply import Reply
from tidelog.server.session import Session
from tidelog.snapshot.manifest import render


async def snapshot(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG SNAPSHOT: fold the log, and publish a copy of the checkpoint. Other clients are not blocked.

    Replies [its path on this machine, 1 if it existed already, its manifest].
    """
    made = await session.server.saving.snapshot()
    return [bytes(made.path), int(made.existed), render(made.manifest)]
