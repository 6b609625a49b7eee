"""XLEN, XRANGE and XREVRANGE (spec 6.1, 6.2)."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.engine.streams import reading
from tidelog.engine.streams.entries import NO_ENTRIES


@command("xlen", 2, "readonly fast")
def xlen(ctx: Context, args: list[bytes]) -> Reply:
    """XLEN key"""
    stream = ctx.stream(args[1])
    return 0 if stream is None else stream.length


@command("xrange", -4, "readonly")
def xrange(ctx: Context, args: list[bytes]) -> Reply:
    """XRANGE key start end [COUNT n]"""
    return _range(ctx, args, args[2], args[3], reverse=False)


@command("xrevrange", -4, "readonly")
def xrevrange(ctx: Context, args: list[bytes]) -> Reply:
    """XREVRANGE key end start [COUNT n]"""
    return _range(ctx, args, args[3], args[2], reverse=True)


def _range(ctx: Context, args: list[bytes], start: bytes, end: bytes, reverse: bool) -> Reply:
    first = ids.parse_start(start)
    last = ids.parse_end(end)
    count: int | None = None
    at = 4
    while at < len(args):
        if args[at].upper() != b"COUNT" or at + 1 == len(args):
            raise CommandError(SYNTAX)
        count = max(int64(args[at + 1]), 0)
        at += 2
    stream = ctx.stream(args[1])
    if stream is None:
        return NO_ENTRIES
    if count == 0:
        return NULL_ARRAY
    return reading.between(stream, first, last, count, reverse)
