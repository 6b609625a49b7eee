"""SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN (spec 16.4). server/saving.py does the saving.

Messages, and the rules for which of them may run concurrently, are those of Redis 7.0.
"""

from __future__ import annotations

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.reply import OK, Reply, Status
from tidelog.server.saving import REWRITE, SAVE
from tidelog.server.session import Session
from tidelog.server.wire.replies import NO_REPLY

_SAVING = b"ERR Background save already in progress"
_REWRITING = b"ERR Background append only file rewriting already in progress"
_OTHER = (
    b"ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a "
    b"BGSAVE whenever possible."
)
_NO_SHUTDOWN = b"ERR No shutdown in progress."
_TOO_LATE = b"ERR The shutdown can not be aborted any more."


async def save(session: Session, args: list[bytes]) -> Reply:
    """SAVE: fold the log into the checkpoint and wait for it. Other clients are not blocked."""
    saving = session.server.saving
    if saving.running == SAVE:
        raise CommandError(_SAVING)
    await saving.save()
    return OK


def bgsave(session: Session, args: list[bytes]) -> Reply:
    """BGSAVE [SCHEDULE]: as SAVE, in the background, and also publish a snapshot if the store keeps snapshots."""
    if len(args) > 2 or (len(args) == 2 and args[1].lower() != b"schedule"):
        raise CommandError(SYNTAX)
    saving = session.server.saving
    if saving.running == SAVE:
        raise CommandError(_SAVING)
    if saving.running:
        if len(args) == 1 and not session.in_exec:
            raise CommandError(_OTHER)
        saving.save_scheduled = True
        return Status(b"Background saving scheduled")
    saving.begin(SAVE)
    return Status(b"Background saving started")


def bgrewriteaof(session: Session, args: list[bytes]) -> Reply:
    """BGREWRITEAOF: fold the log in the background, so that its segments can be deleted."""
    saving = session.server.saving
    if saving.running == REWRITE:
        raise CommandError(_REWRITING)
    if saving.running:
        saving.rewrite_scheduled = True
        return Status(b"Background append only file rewriting scheduled")
    saving.begin(REWRITE)
    return Status(b"Background append only file rewriting started")


def lastsave(session: Session, args: list[bytes]) -> Reply:
    """LASTSAVE: unix seconds of the last checkpoint."""
    return session.server.saving.last_save


async def shutdown(session: Session, args: list[bytes]) -> Reply:
    """SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]

    SAVE folds the log first, as does SHUTDOWN alone if there are `save` rules; NOSAVE does not. No data is lost
    either way, and a clean close folds the log if replaying it would make the next start slow. FORCE: shut down even if
    folding fails. NOW: do not wait for followers (server/leaving.py); unlike in Redis, it also ends a wait that another
    SHUTDOWN has begun. ABORT: cancel a shutdown that is still folding or waiting. Only ABORT gets a reply.
    """
    words = {word.lower() for word in args[1:]}
    if words - {b"save", b"nosave", b"now", b"force", b"abort"}:
        raise CommandError(SYNTAX)
    if {b"save", b"nosave"} <= words or (b"abort" in words and len(words) > 1):
        raise CommandError(SYNTAX)
    server = session.server
    if b"abort" in words:
        if not server.saving.abort():
            raise CommandError(_TOO_LATE if server.saving.leaving else _NO_SHUTDOWN)
        return OK
    wanted = b"save" in words or (b"nosave" not in words and bool(server.config["save"]))
    if b"now" in words:
        server.waiting.insisted = True
    try:
        await server.saving.shutdown(wanted, b"force" in words)
    except CommandError:
        server.waiting.insisted = False
        raise
    return NO_REPLY
