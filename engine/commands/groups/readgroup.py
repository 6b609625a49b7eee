"""XREADGROUP: a consumer reads new entries, idle entries of other consumers, or its own history (spec 7.2).

Every key is decided against the group's state before the command, since keys do not affect each other. Exception: if a
key is listed twice, the second read must see the first. Then the effects are applied to a copy of the group, which
costs O(pending); such commands are rare.
"""

from __future__ import annotations

from functools import lru_cache

from tidelog.engine import idlist, ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.grouping import (
    COUNT_MAX,
    idle_cutoff,
    log_claim,
    log_seen,
    shown,
)
from tidelog.engine.commands.streams.read import NOT_BLOCKING, Budget, ReadOptions, first_of, park
from tidelog.engine.commands.table import command
from tidelog.engine.effects.apply_groups import apply_to_group
from tidelog.engine.effects.effect import DELIVER
from tidelog.engine.errors import CommandError
from tidelog.engine.fast_path import fast_path
from tidelog.engine.groups.group import Group
from tidelog.engine.idlist import pack_one
from tidelog.engine.ids import SEQ_MAX
from tidelog.engine.keys.keyspace import resident
from tidelog.engine.keys.state import State
from tidelog.engine.reply import NULL_ARRAY, Park, Reply, Streams
from tidelog.engine.streams import reading
from tidelog.engine.streams.block import EntryRow
from tidelog.engine.streams.entries import NO_ENTRIES, ClaimedEntries, Entries, RowsPart
from tidelog.engine.streams.lag import read_on, read_one
from tidelog.engine.streams.stream import Stream

# The greatest ID stands for `>`. As in Redis, a client that writes this ID in digits also gets new entries.
NEW = ids.MAX
# bytes of the two integers that CLAIM adds to each entry of a reply
CLAIM_BYTES = len(b":0\r\n:0\r\n")
_PLAIN_DIGITS_MAX = 15  # a time or count with at most this many digits is always in range
_PLAIN_WORDS_MAX = len(("COUNT", "n", "BLOCK", "ms"))
_ZERO = ord("0")
MEANINGLESS_ID = (
    b"ERR The %b ID is meaningless in the context of XREADGROUP: you want to read the history of this"
    b" consumer by specifying a proper ID, or use the > ID to get new messages. The %b ID would just"
    b" return an empty result set."
)


@command("xreadgroup", -7, "write blocking movablekeys", (0, 0, 0))
def xreadgroup(ctx: Context, args: list[bytes]) -> Reply:
    """XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] [CLAIM min-idle-ms] [NOACK]
    [MAXCOUNT n] [MAXSIZE bytes] STREAMS key [key ...] id [id ...]
    """
    if args[-1] == b">" and args[-3] == b"STREAMS" and args[1] == b"GROUP":
        plain = _plain_read(ctx, args)
        if plain is not None:
            return plain
    options = ReadOptions(ctx, args, in_group=True)
    first, number = options.first, options.keys
    name = options.group
    assert name is not None
    wanted: list[tuple[bytes, Stream, Group, int]] = []
    for at in range(first, first + number):
        key = args[at]
        stream = ctx.stream(key)
        group = None if stream is None else stream.groups.get(name)
        if stream is None or group is None:
            raise CommandError(
                b"NOGROUP No such key '%b' or consumer group '%b' in XREADGROUP with GROUP option"
                % (shown(key), shown(name))
            )
        wanted.append((key, stream, group, _after(args[at + number])))
    reply = Streams()
    budget = options.budget()
    views: dict[bytes, Group] | None = None
    if number > 1 and len(set(args[first : first + number])) < number:
        views = {}
    for key, stream, group, after in wanted:
        if budget is not None and budget.spent():
            break
        if views is not None:
            group = views.setdefault(key, group.copy())
        mark = len(ctx.effects)
        if after == NEW:
            entries = _deliver(ctx, options, key, stream, group, budget)
        else:
            # as in Redis, a history ID disables CLAIM for all later keys too
            options.claim_ms = None
            entries = _history(ctx, options, key, stream, group, after, budget)
        if entries is not None:
            reply.append([key, entries])
        if views is not None:
            for effect in ctx.effects[mark:]:
                apply_to_group(group, effect)
    if reply:
        return reply
    claim_at = None if options.claim_ms is None else _claim_at(ctx, options.claim_ms, wanted)
    reply = park(ctx, args, options, claim_at)
    if number == 1 and claim_at is None and reply.__class__ is Park:
        plain = budget is None and not options.noack
        reply.reader = name, options.consumer, (options.count or 0) if plain else None
    return reply


def nothing_new(state: State, db: int, key: bytes, group_name: bytes) -> Group | None:
    """The group, if it certainly has no new entry for a consumer; None if the command must be decided to know.

    The store calls this before it decides the commands of waiting consumers again. Of many consumers that wait for new
    entries of one group, all but one would find nothing each time.
    """
    database = state.databases[db]
    stream = resident(database.keys, key)
    if not isinstance(stream, Stream) or database.expires.count:
        return None
    group = stream.groups.get(group_name)
    if group is None or group.last_id < stream.last_id and stream.last_live_id() > group.last_id:
        return None
    return group


@fast_path(
    of="engine.commands.groups.readgroup:_deliver",
    held_by="tests/engine/test_fast_paths.py::test_a_read_by_the_short_way_is_the_read_by_the_long_way",
)
def _plain_read(ctx: Context, args: list[bytes]) -> Reply:
    """Decide `XREADGROUP GROUP g c [COUNT n] [BLOCK ms] STREAMS key >`. None: the caller takes the general path.

    COUNT and BLOCK may come in any order. Nearly every consumer sends this form, and this path takes half the time of
    the general one. It leaves everything else, errors included, to the general path, which gives the same result.
    """
    try:
        count, block_ms = _plain_options(*args[4:-3])
    except ValueError:
        return None
    key, group, consumer = args[-2], args[2], args[3]
    reply = read_new(ctx, key, group, consumer, count)
    if reply is NULL_ARRAY and block_ms != NOT_BLOCKING and ctx.may_block:
        return Park([(ctx.db, key)], args, block_ms, None, None, (group, consumer, count))
    return reply


@lru_cache(128)  # a consumer repeats the same options
def _plain_options(*words: bytes) -> tuple[int, int]:
    """(COUNT or 0, BLOCK or NOT_BLOCKING). Raises ValueError, which is not cached, for any other or unusual option."""
    count, block_ms = 0, NOT_BLOCKING
    if len(words) > _PLAIN_WORDS_MAX or len(words) & 1:
        raise ValueError
    for name, value in zip(words[::2], words[1::2]):
        if not value.isdigit() or len(value) > _PLAIN_DIGITS_MAX:
            raise ValueError
        if value[0] == _ZERO and (name != b"BLOCK" or len(value) > 1):
            raise ValueError
        if name == b"COUNT":
            count = int(value)
        elif name == b"BLOCK":
            block_ms = int(value)
        else:
            raise ValueError
    return count, block_ms


def read_new(
    ctx: Context, key: bytes, group_name: bytes, consumer_name: bytes, count: int
) -> Reply:
    """Deliver up to `count` new entries of one key (0: any number) to a consumer.

    Returns `Streams`, or the null array if there is no new entry; None if the group does not exist.
    """
    stream = ctx.stream(key)
    group = None if stream is None else stream.groups.get(group_name)
    if stream is None or group is None:
        return None
    if count == 1 or reading.one_at_most_after(stream, group.last_id):
        one = next_one(ctx, key, stream, group, consumer_name)
        if one is not None:
            return Streams(([key, Entries((RowsPart([one[0]], [one[1]]),), 1)],))
    elif group.last_id < stream.last_id:
        if count:
            new = reading.after(stream, group.last_id, count)
        else:
            new = reading.between(stream, group.last_id + 1, ids.MAX, None)
        if new:
            log_new(ctx, key, stream, group, consumer_name, new)
            return Streams(([key, new],))
    consumer = group.consumers.get(consumer_name)
    log_seen(ctx, key, group_name, consumer_name, consumer, len(ctx.effects))
    return NULL_ARRAY


@fast_path(
    of="engine.commands.groups.readgroup:log_new",
    held_by="tests/engine/test_fast_paths.py::test_one_message_is_counted_and_logged_as_many_are",
)
def next_one(
    ctx: Context, key: bytes, stream: Stream, group: Group, consumer: bytes
) -> tuple[int, EntryRow] | None:
    """Deliver the next new entry of a group to a consumer: `log_new` for one entry. Returns (ID, row), or None."""
    last_id = group.last_id
    found = reading.next_after(stream, last_id)
    if found is not None:
        new = found[0]
        read = read_one(stream, last_id, group.entries_read, new)
        packed, ms, seq = pack_one(new), new >> 64, new & SEQ_MAX
        now = ctx.now
        ctx.effects.append(
            (DELIVER, ctx.db, key, group.name, consumer, packed, now, 1, now, ms, seq, read)
        )
    return found


def log_new(
    ctx: Context, key: bytes, stream: Stream, group: Group, consumer: bytes, new: Entries
) -> None:
    """Log the delivery of new entries to a consumer, and the group's new position after them."""
    ids_of_new = new.idlist()
    ms, seq = idlist.last_pair(ids_of_new)
    read = read_on(stream, group.last_id, group.entries_read, new)
    now = ctx.now
    ctx.effects.append(
        (DELIVER, ctx.db, key, group.name, consumer, ids_of_new, now, 1, now, ms, seq, read)
    )


def _after(arg: bytes) -> int:
    if arg == b">":
        return NEW
    if arg in (b"$", b"+"):
        raise CommandError(MEANINGLESS_ID % (arg, arg))
    return ids.parse(arg)


def _deliver(
    ctx: Context,
    options: ReadOptions,
    key: bytes,
    stream: Stream,
    group: Group,
    budget: Budget | None,
) -> Entries | None:
    """Deliver the entries of one key: first those that CLAIM finds, then new ones. None if there are neither."""
    left = options.count
    mark = len(ctx.effects)
    claimed: ClaimedEntries | None = None
    counts: dict[int, int] = {}
    if options.claim_ms is not None and len(group.pending):
        claimed, counts = _claim(ctx, options, key, stream, group, budget)
        if left is not None:
            left -= len(claimed)
    new = NO_ENTRIES
    if left != 0 and stream.length and stream.last_live_id() > group.last_id:
        if budget is None or not budget.spent():
            new = _new(options, key, stream, group, left, budget, opened=bool(claimed))
    if not claimed and not new:
        consumer = group.consumers.get(options.consumer)
        log_seen(ctx, key, group.name, options.consumer, consumer, mark)
        return None
    if not claimed and not options.noack:
        log_new(ctx, key, stream, group, options.consumer, new)
    else:
        moved: tuple[int, ...] = ()
        if new:
            ms_seq = idlist.last_pair(new.idlist())
            moved = *ms_seq, read_on(stream, group.last_id, group.entries_read, new)
        if not options.noack:
            counts |= dict.fromkeys(new.ids(), 1)
        now = ctx.now if claimed else -1
        log_claim(ctx, key, group.name, options.consumer, counts, ctx.now, now, moved)
    if options.claim_ms is None:
        return new
    zeros = [0] * len(new)
    if not claimed:
        return ClaimedEntries(new.parts, len(new), zeros, zeros)
    return ClaimedEntries(
        [*claimed.parts, *new.parts],
        len(claimed) + len(new),
        [*claimed.idle, *zeros],
        [*claimed.deliveries, *zeros],
    )


def _new(
    options: ReadOptions,
    key: bytes,
    stream: Stream,
    group: Group,
    count: int | None,
    budget: Budget | None,
    opened: bool,
) -> Entries:
    """Up to `count` entries after the group's position, as many as the budget allows."""
    entries = reading.between(stream, group.last_id + 1, ids.MAX, count)
    if budget is None:
        return entries
    if not opened:
        budget.open_key(key)
    extra = 0 if options.claim_ms is None else CLAIM_BYTES
    return first_of(stream, entries, group.last_id, budget.take(entries, extra))


def _claim(
    ctx: Context,
    options: ReadOptions,
    key: bytes,
    stream: Stream,
    group: Group,
    budget: Budget | None,
) -> tuple[ClaimedEntries, dict[int, int]]:
    """The entries that are idle for at least CLAIM's min-idle time, oldest delivery first, and their new counts."""
    assert options.claim_ms is not None
    found: list[tuple[int, tuple[bytes, ...] | None]] = []
    idle: list[int] = []
    deliveries: list[int] = []
    cutoff = idle_cutoff(ctx.now, options.claim_ms)
    for time, entry_id in group.pending.by_age():
        if time > cutoff or len(found) == options.count:
            break
        if not stream.still_has(entry_id):
            continue
        entry = (entry_id, stream.get(entry_id))
        if budget is not None:
            if budget.spent():
                break
            if not found:
                budget.open_key(key)
            budget.take(Entries.of([entry]), CLAIM_BYTES)
        row = group.pending.get(entry_id)
        assert row is not None
        found.append(entry)
        idle.append(ctx.now - max(time, 0))
        deliveries.append(row[2])
    view = Entries.of(found)
    counts = {
        entry_id: min(count + 1, COUNT_MAX) for (entry_id, _), count in zip(found, deliveries)
    }
    return ClaimedEntries(view.parts, len(found), idle, deliveries), counts


def _claim_at(ctx: Context, claim_ms: int, wanted: list[tuple[bytes, Stream, Group, int]]) -> int:
    """Unix ms at which the next pending entry of these keys becomes claimable (spec 10.4)."""
    oldest = [
        next((time for time, id in group.pending.by_age() if stream.still_has(id)), ctx.now)
        for _, stream, group, _ in wanted
    ]
    return claim_ms + min(oldest)


def _history(
    ctx: Context,
    options: ReadOptions,
    key: bytes,
    stream: Stream,
    group: Group,
    after: int,
    budget: Budget | None,
) -> Entries:
    """Redeliver the entries that this consumer has pending after an ID. Deleted entries have None as their row."""
    mark = len(ctx.effects)
    consumer = group.consumers.get(options.consumer)
    entries = NO_ENTRIES
    counts: dict[int, int] = {}
    if consumer is not None:
        count = len(group.pending) if options.count is None else options.count
        page = group.pending.page(after + 1, ids.MAX, count, consumer.index)
        found = [(entry_id, stream.get(entry_id)) for entry_id, *_ in page]
        entries = Entries.of(found)
        if budget is not None:
            budget.open_key(key)
            found = found[: budget.take(entries)]
            entries = Entries.of(found)
        counts = {
            entry_id: min(deliveries + 1, COUNT_MAX)
            for (entry_id, message), (_, _, _, deliveries) in zip(found, page)
            if message is not None
        }
    if counts:
        log_claim(ctx, key, group.name, options.consumer, counts, ctx.now, -1, ())
    else:
        log_seen(ctx, key, group.name, options.consumer, consumer, mark)
    return entries
