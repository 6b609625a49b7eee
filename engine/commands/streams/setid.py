"""XSETID (spec 5.6)."""

from __future__ import annotations

from typing import Final

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XGROUP_SETID, XSETID
from tidelog.engine.errors import NO_SUCH_KEY, SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply

ADDED_NEGATIVE: Final = b"ERR entries_added must be positive"
BELOW_GIVEN: Final = (
    b"ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"
)
BELOW_DELETED: Final = (
    b"ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"
)
BELOW_TOP: Final = b"ERR The ID specified in XSETID is smaller than the target stream top item"
ADDED_BELOW_LENGTH: Final = (
    b"ERR The entries_added specified in XSETID is smaller than the target stream length"
)


@command("xsetid", -3, "write denyoom fast")
def xsetid(ctx: Context, args: list[bytes]) -> Reply:
    """XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id]"""
    last_id = ids.parse(args[2])
    added: int | None = None
    max_deleted = 0
    at = 3
    while at < len(args):
        word = args[at].upper()
        if at + 1 == len(args):
            raise CommandError(SYNTAX)
        if word == b"ENTRIESADDED":
            added = int64(args[at + 1])
            if added < 0:
                raise CommandError(ADDED_NEGATIVE)
        elif word == b"MAXDELETEDID":
            max_deleted = ids.parse(args[at + 1])
            if last_id < max_deleted:
                raise CommandError(BELOW_GIVEN)
        else:
            raise CommandError(SYNTAX)
        at += 2
    stream = ctx.stream(args[1])
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    if last_id < stream.max_deleted_id:
        raise CommandError(BELOW_DELETED)
    if stream.length:
        if last_id < stream.last_live_id():
            raise CommandError(BELOW_TOP)
        if added is not None and added < stream.length:
            raise CommandError(ADDED_BELOW_LENGTH)
    max_deleted = max_deleted or stream.max_deleted_id
    added = stream.entries_added if added is None else added
    ctx.effects.append(
        (
            *(XSETID, ctx.db, args[1], last_id >> 64, last_id & ids.SEQ_MAX, added),
            *(max_deleted >> 64, max_deleted & ids.SEQ_MAX),
        )
    )
    for name, group in stream.groups.items():
        if group.entries_read > added:  # its lag would be negative
            at = group.last_id
            ctx.effects.append(
                (XGROUP_SETID, ctx.db, args[1], name, at >> 64, at & ids.SEQ_MAX, added)
            )
    return OK
