"""Shared code of the consumer group commands: look up a group, its errors, log consumers and claims."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.effects.effect import DELIVER, SEEN, XGROUP_CREATECONSUMER, Effect
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.groups.group import Consumer, Group
from tidelog.engine.idlist import EMPTY, SEQ_MASK, pack
from tidelog.engine.streams.stream import Stream

COUNT_MAX = (1 << 63) - 1  # delivery counts stop here (spec 7.2.4)


def shown(raw: bytes) -> bytes:
    """A name for an error message in which Redis does not limit its length."""
    return echo(raw, len(raw))


def no_group(key: bytes, group: bytes) -> CommandError:
    """The error for a missing key or group, as most commands word it."""
    return CommandError(
        b"NOGROUP No such key '%b' or consumer group '%b'" % (shown(key), shown(group))
    )


def find_group(ctx: Context, key: bytes, name: bytes) -> tuple[Stream, Group]:
    """Look up a stream and its group. Raises CommandError: WRONGTYPE, NOGROUP."""
    stream = ctx.stream(key)
    group = None if stream is None else stream.groups.get(name)
    if stream is None or group is None:
        raise no_group(key, name)
    return stream, group


def idle_cutoff(now: int, idle_ms_min: int) -> int:
    """The latest delivery time, unix ms, of an entry that has been idle for `idle_ms_min`.

    At least -1, so that entries of the NACK zone, whose times are lower, always count as idle.
    """
    return max(now - idle_ms_min, -1)


def log_seen(
    ctx: Context, key: bytes, group: bytes, name: bytes, consumer: Consumer | None, mark: int
) -> None:
    """Log that a consumer got nothing: create it if it does not exist, and set its seen-time.

    mark: len(ctx.effects) before this command or key. If the command has logged effects since, log an empty DELIVER
    with them. Otherwise log the creation of the consumer, or SEEN, which is not written to the log.
    """
    now = ctx.now
    effect: Effect
    if len(ctx.effects) > mark:
        effect = (DELIVER, ctx.db, key, group, name, EMPTY, now, 0, -1)
    elif consumer is None:
        effect = (XGROUP_CREATECONSUMER, ctx.db, key, group, name, now)
    elif consumer.seen_time == now:
        return
    else:
        effect = (SEEN, ctx.db, key, group, name, now)
    ctx.effects.append(effect)


def log_claim(
    ctx: Context,
    key: bytes,
    group: bytes,
    consumer: bytes,
    counts: dict[int, int],
    time: int,
    now: int,
    moved: tuple[int, ...],
) -> None:
    """Log that a consumer got these entries.

    counts: ID -> delivery count. time: delivery time, unix ms. now: the consumer's new seen-time and active-time, unix
    ms; -1: keep the active-time and take `time` as seen-time. moved: the group's new `position`, or ().
    """
    claimed = sorted(counts)
    each = tuple([counts[entry_id] for entry_id in claimed])
    tally = each if len(set(each)) > 1 else each[0] if each else 0
    ctx.effects.append(
        (DELIVER, ctx.db, key, group, consumer, pack(claimed), time, tally, now, *moved)
    )


def position(last_id: int, entries_read: int) -> tuple[int, int, int]:
    """A group's position as in effects: (ms, seq, entries-read)."""
    return last_id >> 64, last_id & SEQ_MASK, entries_read
