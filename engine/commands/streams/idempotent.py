"""XCFGSET and XIDMPRECORD: configure and restore dedup tables (spec 5.7, 5.8)."""

from __future__ import annotations

from typing import Final

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import STREAM_CREATE, XCFGSET, XIDMPRECORD
from tidelog.engine.errors import NO_SUCH_KEY, SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.engine.keys.state import Settings
from tidelog.engine.reply import OK, Reply
from tidelog.engine.streams.idmp import (
    DURATION_DEFAULT_S,
    DURATION_MAX_S,
    MAXSIZE_DEFAULT,
    MAXSIZE_MAX,
)
from tidelog.engine.streams.stream import Stream

DURATION: Final = b"IDMP-DURATION"
MAXSIZE: Final = b"IDMP-MAXSIZE"
RANGES: Final = {
    DURATION: (DURATION_MAX_S, b"ERR IDMP-DURATION must be between 1 and 86400 seconds"),
    MAXSIZE: (MAXSIZE_MAX, b"ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
}
BUILT_IN: Final = (DURATION_DEFAULT_S, MAXSIZE_DEFAULT)
NOTHING_GIVEN: Final = b"ERR At least one parameter must be specified"
EMPTY_PID: Final = b"ERR producer ID must be non-empty"
EMPTY_IID: Final = b"ERR idempotent ID must be non-empty"
NO_MESSAGE: Final = b"ERR No such message in stream"
OTHER_ID: Final = b"ERR IID already exists for this producer with a different stream ID"


def limits(stream: Stream | None, settings: Settings) -> tuple[int, int]:
    """(duration in seconds, maxsize) of a stream. The server's settings for a stream that never used a dedup table."""
    if stream is None or stream.idmp is None:
        return settings.stream_idmp_duration, settings.stream_idmp_maxsize
    return stream.idmp.duration, stream.idmp.maxsize


@command("xcfgset", -2, "write fast")
def xcfgset(ctx: Context, args: list[bytes]) -> Reply:
    """XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE n]"""
    stream = ctx.stream(args[1])
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    given: dict[bytes, int] = {}
    at = 2
    while at < len(args):
        word = args[at].upper()
        if word not in RANGES or at + 1 == len(args):
            raise CommandError(SYNTAX)
        if word in given:
            raise CommandError(b"ERR %b specified multiple times" % word)
        most, out_of_range = RANGES[word]
        given[word] = int64(args[at + 1])
        if not 1 <= given[word] <= most:
            raise CommandError(out_of_range)
        at += 2
    if not given:
        raise CommandError(NOTHING_GIVEN)
    before = limits(stream, ctx.settings)
    after = (given.get(DURATION, before[0]), given.get(MAXSIZE, before[1]))
    if after != before:
        ctx.effects.append((XCFGSET, ctx.db, args[1], *after))
    return OK


@command("xidmprecord", 5, "write denyoom fast")
def xidmprecord(ctx: Context, args: list[bytes]) -> Reply:
    """XIDMPRECORD key pid iid stream-id"""
    _, key, pid, iid, text = args
    entry_id = ids.parse(text)
    if not pid:
        raise CommandError(EMPTY_PID)
    if not iid:
        raise CommandError(EMPTY_IID)
    stream = ctx.stream(key)
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    if not stream.contains(entry_id):
        raise CommandError(NO_MESSAGE)
    known = stream.idmp.lookup(pid, iid, ctx.now) if stream.idmp is not None else None
    if known == entry_id:
        return OK
    if known is not None:
        raise CommandError(OTHER_ID)
    settle_limits(ctx, key, stream)
    ms = entry_id >> 64
    time = recorded_at(ctx, ms)
    ctx.effects.append((XIDMPRECORD, ctx.db, key, pid, iid, ms, entry_id & ids.SEQ_MAX, *time))
    return OK


def recorded_at(ctx: Context, ms: int) -> tuple[int, ...]:
    """The last field of an effect that records an iid for an entry ID with this ms: `now`, if the ID is ahead of it."""
    return (ctx.now,) if ms > ctx.now else ()


def settle_limits(ctx: Context, key: bytes, stream: Stream | None) -> None:
    """Log the server's dedup settings before a stream's first iid, unless they are the built-in ones.

    Apply cannot read the settings.
    """
    before = limits(stream, ctx.settings)
    if (stream is None or stream.idmp is None) and before != BUILT_IN:
        if stream is None:
            ctx.effects.append((STREAM_CREATE, ctx.db, key))
        ctx.effects.append((XCFGSET, ctx.db, key, *before))
