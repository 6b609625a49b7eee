"""XNACK: release pending entries to the group, without owner (spec 7.5)."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.grouping import COUNT_MAX, find_group, shown
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XNACK
from tidelog.engine.errors import CommandError
from tidelog.engine.idlist import pack
from tidelog.engine.ids import parse_many
from tidelog.engine.integers import int64, read_int64
from tidelog.engine.reply import Reply

NUMIDS_MAX = (1 << 31) - 1


class _Options:
    """The arguments of XNACK after the mode."""

    __slots__ = ("listed", "retrycount", "force")

    def __init__(self, args: list[bytes]) -> None:
        self.listed: list[bytes] | None = None
        self.retrycount: int | None = None
        self.force = False
        at = 4
        while at < len(args):
            word = args[at].upper()
            if word == b"IDS" and self.listed is None and at + 1 < len(args):
                count = read_int64(args[at + 1])
                if count is None or not 1 <= count <= NUMIDS_MAX:
                    raise CommandError(b"ERR numids must be a positive integer")
                if count > len(args) - at - 2:
                    raise CommandError(b"ERR number of IDs doesn't match numids")
                self.listed = args[at + 2 : at + 2 + count]
                at += 2 + count
            elif word == b"RETRYCOUNT" and at + 1 < len(args):
                self.retrycount = int64(args[at + 1])
                if self.retrycount < 0:
                    raise CommandError(b"ERR Invalid RETRYCOUNT value, must be >= 0")
                at += 2
            elif word == b"FORCE":
                self.force = True
                at += 1
            else:
                raise CommandError(b"ERR Unrecognized XNACK option '%b'" % shown(args[at]))


@command("xnack", -7, "write fast")
def xnack(ctx: Context, args: list[bytes]) -> Reply:
    """XNACK key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT n] [FORCE]"""
    stream, group = find_group(ctx, args[1], args[2])
    mode = args[3].upper()
    if mode not in (b"SILENT", b"FAIL", b"FATAL"):
        raise CommandError(b"ERR mode must be SILENT, FAIL, or FATAL")
    options = _Options(args)
    if options.listed is None:
        raise CommandError(b"ERR syntax error, expected IDS keyword")
    nacked = 0
    # ID -> delivery count, in the order in which the entries enter the NACK zone
    counts: dict[int, int] = {}
    for entry_id in parse_many(options.listed):
        # If an ID is repeated, the command releases it twice: the entry moves to the end again, and SILENT subtracts
        # two deliveries.
        count = counts.pop(entry_id, None)
        if count is None:
            row = group.pending.get(entry_id)
            if row is not None:
                count = row[2]
            elif options.force and stream.contains(entry_id):
                count = 0
            else:
                continue
        if options.retrycount is not None:
            count = options.retrycount
        elif mode == b"SILENT":
            count = max(count - 1, 0)
        elif mode == b"FATAL":
            count = COUNT_MAX
        counts[entry_id] = count
        nacked += 1
    if counts:
        ctx.effects.append(
            (XNACK, ctx.db, args[1], args[2], pack(list(counts)), tuple(counts.values()))
        )
    return nacked
