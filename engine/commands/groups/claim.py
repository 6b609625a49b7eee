"""XCLAIM and XAUTOCLAIM: move pending entries to another consumer (spec 7.6, 7.7)."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.grouping import (
    COUNT_MAX,
    find_group,
    idle_cutoff,
    log_claim,
    log_seen,
    position,
    shown,
)
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XACK
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.groups.group import Group
from tidelog.engine.idlist import pack
from tidelog.engine.integers import int64, read_int64
from tidelog.engine.reply import Reply
from tidelog.engine.streams.entries import Entries
from tidelog.engine.streams.stream import Stream

AUTOCLAIM_COUNT = 100  # by default
LOOKS_PER_COUNT = 10  # XAUTOCLAIM visits up to COUNT times this many pending entries
AUTOCLAIM_COUNT_MAX = ((1 << 63) - 1) // 16
# Redis allocates 16 bytes for each of COUNT entries. From this COUNT on, the allocation fails.
UNALLOCATABLE_COUNT = 1 << 43


class _Options:
    """The arguments of XCLAIM from the min-idle time on: IDs and options."""

    __slots__ = ("idle_ms_min", "ids", "time", "retrycount", "force", "justid", "last_id")

    def __init__(self, args: list[bytes], now: int) -> None:
        self.idle_ms_min = max(int64(args[4], b"ERR Invalid min-idle-time argument for XCLAIM"), 0)
        self.ids: list[int] = []
        self.time = now
        self.retrycount = -1
        self.force = self.justid = False
        self.last_id = 0
        at = 5
        # The options begin at the first argument that is not a valid ID. As in Redis, a malformed ID therefore counts
        # as an unknown option.
        while at < len(args) and (entry_id := ids.parse_or_none(args[at])) is not None:
            self.ids.append(entry_id)
            at += 1
        while at < len(args):
            word = args[at].upper()
            at += 1
            if word == b"FORCE":
                self.force = True
            elif word == b"JUSTID":
                self.justid = True
            elif word in (b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID") and at < len(args):
                self._take(word, args[at], now)
                at += 1
            else:
                raise CommandError(b"ERR Unrecognized XCLAIM option '%b'" % shown(args[at - 1]))

    def _take(self, word: bytes, arg: bytes, now: int) -> None:
        if word == b"LASTID":
            self.last_id = ids.parse(arg)
            return
        value = int64(arg, b"ERR Invalid %b option argument for XCLAIM" % word)
        if word == b"RETRYCOUNT":
            self.retrycount = value
            return
        time = value if word == b"TIME" else now - value
        # A time in the future or below 0 is not an error, since the client's clock may be wrong. Use `now` instead.
        self.time = time if 0 <= time <= now else now


@command("xclaim", -6, "write fast")
def xclaim(ctx: Context, args: list[bytes]) -> Reply:
    """XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-ms] [RETRYCOUNT n]
    [FORCE] [JUSTID] [LASTID id]
    """
    key, name, consumer_name = args[1:4]
    stream, group = find_group(ctx, key, name)
    options = _Options(args, ctx.now)
    mark = len(ctx.effects)
    claimed, counts, gone = _claim(ctx, stream, group, options)
    if gone:
        ctx.effects.append((XACK, ctx.db, key, name, pack(sorted(gone))))
    moved: tuple[int, ...] = ()
    if options.last_id > group.last_id:
        moved = position(options.last_id, group.entries_read)
    if counts or moved:
        now = ctx.now if counts else -1
        time = options.time if counts else ctx.now
        log_claim(ctx, key, name, consumer_name, counts, time, now, moved)
    else:
        log_seen(ctx, key, name, consumer_name, group.consumers.get(consumer_name), mark)
    return _reply(stream, claimed, options.justid)


def _claim(
    ctx: Context, stream: Stream, group: Group, options: _Options
) -> tuple[list[int], dict[int, int], set[int]]:
    """Decide an XCLAIM: (claimed IDs in the order of the reply, ID -> new delivery count, pending IDs to drop)."""
    pending = group.pending
    cutoff = idle_cutoff(ctx.now, options.idle_ms_min)
    claimed: list[int] = []
    counts: dict[int, int] = {}
    gone: set[int] = set()
    for entry_id in options.ids:
        row = None if entry_id in gone else pending.get(entry_id)
        if entry_id in counts:  # repeated: this command has claimed it already
            time, count = options.time, counts[entry_id]
        elif row is not None:
            if not stream.still_has(entry_id):
                gone.add(entry_id)
                continue
            time, _, count = row
        elif options.force and stream.contains(entry_id):
            time, count = -1, 1
        else:
            continue
        if options.idle_ms_min and time > cutoff:
            continue
        if options.retrycount >= 0:
            count = options.retrycount
        elif not options.justid:
            count = min(count + 1, COUNT_MAX)
        counts[entry_id] = count
        claimed.append(entry_id)
    return claimed, counts, gone


def _reply(stream: Stream, claimed: list[int], justid: bool) -> Reply:
    if justid:
        return [ids.text(entry_id) for entry_id in claimed]
    return Entries.of([(entry_id, stream.get(entry_id)) for entry_id in claimed])


@command("xautoclaim", -6, "write fast")
def xautoclaim(ctx: Context, args: list[bytes]) -> Reply:
    """XAUTOCLAIM key group consumer min-idle-time start [COUNT n] [JUSTID]"""
    key, name, consumer_name = args[1:4]
    idle_ms_min = max(int64(args[4], b"ERR Invalid min-idle-time argument for XAUTOCLAIM"), 0)
    start = ids.parse_start(args[5])
    count, justid = AUTOCLAIM_COUNT, False
    at = 6
    while at < len(args):
        word = args[at].upper()
        if word == b"COUNT" and at + 1 < len(args):
            at += 1
            count = read_int64(args[at]) or 0
            if not 1 <= count <= AUTOCLAIM_COUNT_MAX:
                raise CommandError(b"ERR COUNT must be > 0")
        elif word == b"JUSTID":
            justid = True
        else:
            raise CommandError(SYNTAX)
        at += 1
    stream, group = find_group(ctx, key, name)
    if count >= UNALLOCATABLE_COUNT:
        raise CommandError(
            b"ERR Insufficient memory, failed allocating transient memory, COUNT too high."
        )
    cutoff = idle_cutoff(ctx.now, idle_ms_min)
    cursor, claimed, gone = _walk(stream, group, start, cutoff, count)
    mark = len(ctx.effects)
    if gone:
        ctx.effects.append((XACK, ctx.db, key, name, pack(gone)))
    if claimed:
        if not justid:
            claimed = {id: min(count + 1, COUNT_MAX) for id, count in claimed.items()}
        log_claim(ctx, key, name, consumer_name, claimed, ctx.now, ctx.now, ())
    else:
        log_seen(ctx, key, name, consumer_name, group.consumers.get(consumer_name), mark)
    return [
        ids.text(cursor),
        _reply(stream, list(claimed), justid),
        [ids.text(entry_id) for entry_id in gone],
    ]


def _walk(
    stream: Stream, group: Group, start: int, cutoff: int, count: int
) -> tuple[int, dict[int, int], list[int]]:
    """Visit the pending entries from `start` on: (cursor, ID -> delivery count of those to claim, deleted IDs)."""
    pending = group.pending
    to_id = pending.to_id
    looks = count * LOOKS_PER_COUNT
    claimed: dict[int, int] = {}
    gone: list[int] = []
    for column, times, _, counts in pending.slices(start):
        if not looks or not count:
            return to_id(column[0]), claimed, gone
        all_there = to_id(column[0]) > stream.removed_max
        if all_there and len(column) <= looks and min(times) > cutoff:
            looks -= len(column)  # none of them is idle
            continue
        for at, key in enumerate(column):
            if not looks or not count:
                return to_id(key), claimed, gone
            looks -= 1
            entry_id = to_id(key)
            if not all_there and not stream.still_has(entry_id):
                gone.append(entry_id)
                count -= 1
            elif times[at] <= cutoff:
                claimed[entry_id] = counts[at]
                count -= 1
    return 0, claimed, gone
