"""XREAD, and the options, limits and parking that it shares with XREADGROUP (spec 6.3, 10, 19)."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.reply import NULL_ARRAY, Park, Reply, Streams
from tidelog.engine.streams import reading
from tidelog.engine.streams.entries import NO_ENTRIES, Entries
from tidelog.engine.streams.stream import Stream

NOT_BLOCKING = -1
TIMEOUT = b"ERR timeout is not an integer or out of range"
GROUP_ONLY = b"ERR The %b option is only supported by XREADGROUP. You called XREAD instead."
NEW_ONLY_IN_GROUPS = (
    b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer>"
    b" option."
)
UNBALANCED = b"ERR Unbalanced '%b' list of streams: for each stream key an ID%b must be specified."


class ReadOptions:
    """The options of XREAD and XREADGROUP, and the positions of their keys and IDs.

    count        entries per key, None = no limit          first      index in args of the first key
    block_ms     0 = for ever, or NOT_BLOCKING             keys       number of keys
    claim_ms     CLAIM's min-idle time, or None            noack, group, consumer    as given
    """

    __slots__ = (
        *("count", "block_ms", "claim_ms", "noack", "group", "consumer", "first", "keys"),
        *("maxcount", "maxsize"),
    )

    def __init__(self, ctx: Context, args: list[bytes], in_group: bool) -> None:
        self.count: int | None = None
        self.block_ms = NOT_BLOCKING
        self.claim_ms: int | None = None
        self.noack = False
        self.group: bytes | None = None
        self.consumer = b""
        self.maxcount: int | None = None
        self.maxsize: int | None = None
        at, end = 1, len(args)
        while at < end:
            word = args[at].upper()
            more = end - at - 1
            if word == b"STREAMS" and more:
                break
            if word == b"COUNT" and more:
                count = int64(args[at + 1])
                self.count = count if count > 0 else None
                at += 2
            elif word == b"GROUP" and more >= 2:
                if not in_group:
                    raise CommandError(GROUP_ONLY % word)
                self.group, self.consumer = args[at + 1], args[at + 2]
                at += 3
            elif word == b"BLOCK" and more:
                self.block_ms = _timeout(args[at + 1], ctx.now)
                at += 2
            elif word == b"NOACK" or (word == b"CLAIM" and (more or not in_group)):
                if not in_group:
                    raise CommandError(GROUP_ONLY % word)
                if word == b"NOACK":
                    self.noack = True
                    at += 1
                else:
                    self.claim_ms = _min_idle(args[at + 1])
                    at += 2
            elif word == b"MAXCOUNT" and more:
                self.maxcount = _positive(args[at + 1], word)
                at += 2
            elif word == b"MAXSIZE" and more:
                self.maxsize = _positive(args[at + 1], word)
                at += 2
            else:
                raise CommandError(SYNTAX)
        else:
            raise CommandError(SYNTAX)
        self.first = at + 1
        if (end - self.first) % 2:
            name, forms = (b"xreadgroup", b" or '>'") if in_group else (b"xread", b", '+', or '$'")
            raise CommandError(UNBALANCED % (name, forms))
        self.keys = (end - self.first) // 2
        if in_group and self.group is None:
            raise CommandError(b"ERR Missing GROUP option for XREADGROUP")
        if self.maxcount is not None and self.count is not None and self.maxcount < self.count:
            raise CommandError(b"ERR MAXCOUNT must be greater than or equal to COUNT")

    def budget(self) -> Budget | None:
        """The limits of the whole reply, or None if neither MAXCOUNT nor MAXSIZE is given."""
        if self.maxcount is None and self.maxsize is None:
            return None
        return Budget(self.maxcount, self.maxsize)


def _timeout(arg: bytes, now: int) -> int:
    timeout = int64(arg, TIMEOUT)
    if timeout < 0:
        raise CommandError(b"ERR timeout is negative")
    if timeout > INT64_MAX - now:
        raise CommandError(b"ERR timeout is out of range")
    return timeout


def _min_idle(arg: bytes) -> int:
    idle_ms_min = int64(arg, b"ERR min-idle-time is not an integer or out of range")
    if idle_ms_min < 0:
        raise CommandError(b"ERR min-idle-time must be a positive integer")
    return idle_ms_min


def _positive(arg: bytes, name: bytes) -> int:
    number = int64(arg)
    if number <= 0:
        raise CommandError(b"ERR %b must be a positive integer" % name)
    return number


class Budget:
    """MAXCOUNT and MAXSIZE: the entries and bytes that are left for a reply, over all its keys.

    Bytes are counted as in RESP2. An entry is added as long as the bytes before it are below the limit. The first entry
    is always added.
    """

    __slots__ = ("entries", "bytes", "empty")

    def __init__(self, entries: int | None, bytes_max: int | None) -> None:
        self.entries = entries
        self.bytes = bytes_max
        self.empty = True

    def spent(self) -> bool:
        """Whether no further entry fits. The caller then stops at this key."""
        if self.entries == 0:
            return True
        return self.bytes is not None and self.bytes <= 0 and not self.empty

    def open_key(self, key: bytes) -> None:
        """Account for a key of the reply."""
        if self.bytes is not None:
            self.bytes -= len(b"*2\r\n") + _bulk_bytes(key)

    def take(self, entries: Entries, extra: int = 0) -> int:
        """Deduct the entries that fit. Returns their number. extra: bytes that each entry takes in addition."""
        room = len(entries) if self.entries is None else min(len(entries), self.entries)
        taken = room
        if self.bytes is not None:
            taken = 0
            for entry_id, row in entries:
                if taken == room or self.spent():
                    break
                self.bytes -= entry_bytes(entry_id, row) + extra
                self.empty = False
                taken += 1
        if self.entries is not None:
            self.entries -= taken
        return taken


def _bulk_bytes(text: bytes) -> int:
    return len(b"$%d\r\n" % len(text)) + len(text) + 2


def entry_bytes(entry_id: int, row: tuple[bytes, ...] | None) -> int:
    """Bytes of an entry in a RESP2 reply. row: None for a deleted entry."""
    size = len(b"*2\r\n") + _bulk_bytes(ids.text(entry_id))
    if row is None:
        return size + len(b"*-1\r\n")
    return size + len(b"*%d\r\n" % len(row)) + sum(map(_bulk_bytes, row))


@command("xread", -4, "readonly blocking movablekeys", (0, 0, 0))
def xread(ctx: Context, args: list[bytes]) -> Reply:
    """XREAD [COUNT n] [BLOCK ms] [MAXCOUNT n] [MAXSIZE bytes] STREAMS key [key ...] id [id ...]"""
    options = ReadOptions(ctx, args, in_group=False)
    first = options.first
    wanted: list[tuple[bytes, Stream | None, int]] = []
    for at in range(first, first + options.keys):
        stream = ctx.stream(args[at])
        wanted.append((args[at], stream, _after(args[at + options.keys], stream)))
    reply = Streams()
    budget = options.budget()
    for key, stream, after in wanted:
        if budget is not None and budget.spent():
            break
        if stream is None or not stream.length or stream.last_live_id() <= after:
            continue
        entries = reading.between(stream, after + 1, ids.MAX, options.count)
        if budget is not None:
            budget.open_key(key)
            entries = first_of(stream, entries, after, budget.take(entries))
        reply.append([key, entries])
    if reply:
        return reply
    return park(ctx, args, options, None)


def first_of(stream: Stream, entries: Entries, after: int, count: int) -> Entries:
    """The first `count` of `entries`, which are the entries after an ID."""
    if count == len(entries):
        return entries
    return reading.between(stream, after + 1, ids.MAX, count) if count else NO_ENTRIES


def _after(arg: bytes, stream: Stream | None) -> int:
    """The ID after which XREAD reads."""
    if arg == b"$":
        return 0 if stream is None else stream.last_id
    if arg == b"+":
        return stream.last_live_id() - 1 if stream is not None and stream.length else 0
    if arg == b">":
        raise CommandError(NEW_ONLY_IN_GROUPS)
    return ids.parse(arg)


def park(ctx: Context, args: list[bytes], options: ReadOptions, claim_at: int | None) -> Reply:
    """The reply of a read that found nothing: `Park`, or the null array. Replaces each `$` by the ID it means now."""
    if options.block_ms == NOT_BLOCKING or not ctx.may_block:
        return NULL_ARRAY
    args = list(args)
    keys = args[options.first : options.first + options.keys]
    for at, key in enumerate(keys, options.first + options.keys):
        if args[at] == b"$":
            stream = ctx.stream(key)
            args[at] = ids.text(0 if stream is None else stream.last_id)
    places = list(dict.fromkeys((ctx.db, key) for key in keys))
    return Park(places, args, options.block_ms, claim_at)
