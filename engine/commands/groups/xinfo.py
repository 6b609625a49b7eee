"""XINFO STREAM, GROUPS and CONSUMERS (spec 8)."""

from __future__ import annotations

from typing import Any

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.xgroup import no_such_group, wrong_subcommand
from tidelog.engine.commands.table import command
from tidelog.engine.errors import NO_SUCH_KEY, CommandError
from tidelog.engine.groups.group import NEVER_ACTIVE, UNKNOWN, Consumer, Group
from tidelog.engine.integers import int64
from tidelog.engine.reply import Map, Reply, Status
from tidelog.engine.streams import reading
from tidelog.engine.streams.entries import Entries
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stream import Stream

FULL_COUNT = 10  # entries and pending entries listed by default

HELP = b"""\
XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
CONSUMERS <key> <groupname>
    Show consumers of <groupname>.
GROUPS <key>
    Show the stream consumer groups.
STREAM <key> [FULL [COUNT <count>]
    Show information about the stream.
HELP
    Print this help.""".split(b"\n")


def _stream(ctx: Context, key: bytes) -> Stream:
    stream = ctx.stream(key)
    if stream is None:
        raise CommandError(NO_SUCH_KEY)
    return stream


@command("xinfo|stream", -3, "readonly", (2, 2, 1))
def xinfo_stream(ctx: Context, args: list[bytes]) -> Reply:
    """XINFO STREAM key [FULL [COUNT n]]"""
    stream = _stream(ctx, args[2])
    if len(args) == 3:
        return _summary(ctx, stream)
    if len(args) not in (4, 6) or args[3].upper() != b"FULL":
        raise wrong_subcommand(args)
    count = FULL_COUNT
    if len(args) == 6:
        if args[4].upper() != b"COUNT":
            raise wrong_subcommand(args)
        count = int64(args[5])
        if count < 0:
            count = FULL_COUNT
    return _full(ctx, stream, count)


def _counters(ctx: Context, stream: Stream) -> list[Any]:
    """The fields that both forms of XINFO STREAM begin with."""
    idmp = stream.idmp or Idmp(ctx.settings.stream_idmp_duration, ctx.settings.stream_idmp_maxsize)
    pids, iids = idmp.tracked(ctx.now)
    nodes = stream.nodes()
    # fmt: off
    return [
        b"length",                  stream.length,
        b"radix-tree-keys",         nodes,
        b"radix-tree-nodes",        nodes + 1,
        b"last-generated-id",       ids.text(stream.last_id),
        b"max-deleted-entry-id",    ids.text(stream.max_deleted_id),
        b"entries-added",           stream.entries_added,
        b"recorded-first-entry-id", ids.text(stream.first_id()),
        b"idmp-duration",           idmp.duration,
        b"idmp-maxsize",            idmp.maxsize,
        b"pids-tracked",            pids,
        b"iids-tracked",            iids,
        b"iids-added",              idmp.added,
        b"iids-duplicates",         idmp.duplicates,
    ]
    # fmt: on


def _summary(ctx: Context, stream: Stream) -> Reply:
    first = reading.between(stream, 0, ids.MAX, 1)
    last = reading.between(stream, 0, ids.MAX, 1, reverse=True)
    info = Map(_counters(ctx, stream))
    info += [b"groups", len(stream.groups)]
    info += [b"first-entry", _entry(first), b"last-entry", _entry(last)]
    return info


def _entry(entries: Entries) -> Reply:
    """The only entry of a run as [ID, [field, value, ...]], or None if the run is empty."""
    for entry_id, row in entries:
        return [ids.text(entry_id), list(row or ())]
    return None


def _full(ctx: Context, stream: Stream, count: int) -> Reply:
    info = Map(_counters(ctx, stream))
    info += [b"entries", reading.between(stream, 0, ids.MAX, count or None)]
    groups = [stream.groups[name] for name in sorted(stream.groups)]
    info += [b"groups", [_group(stream, group, count) for group in groups]]
    return info


def _group(stream: Stream, group: Group, count: int) -> Reply:
    pending = group.pending
    page = pending.page(0, ids.MAX, count or len(pending))
    # fmt: off
    return Map([
        b"name",              group.name,
        b"last-delivered-id", ids.text(group.last_id),
        b"entries-read",      _known(group.entries_read),
        b"lag",               lag(stream, group),
        b"pel-count",         len(pending),
        b"nacked-count",      pending.nacked(),
        b"pending",           [[ids.text(entry_id), group.owner_name(owner), max(time, 0), deliveries]
                               for entry_id, time, owner, deliveries in page],
        b"consumers",         [_consumer(group, consumer, count) for consumer in group.listed()],
    ])
    # fmt: on


def _consumer(group: Group, consumer: Consumer, count: int) -> Reply:
    held = group.pending.held_by(consumer.index)
    page = group.pending.page(0, ids.MAX, count or held, consumer.index)
    # fmt: off
    return Map([
        b"name",        consumer.name,
        b"seen-time",   consumer.seen_time,
        b"active-time", consumer.active_time,
        b"pel-count",   held,
        b"pending",     [[ids.text(entry_id), time, deliveries]
                         for entry_id, time, _, deliveries in page],
    ])
    # fmt: on


def _known(entries_read: int) -> int | None:
    return None if entries_read == UNKNOWN else entries_read


@command("xinfo|groups", 3, "readonly", (2, 2, 1))
def xinfo_groups(ctx: Context, args: list[bytes]) -> Reply:
    """XINFO GROUPS key"""
    stream = _stream(ctx, args[2])
    groups = [stream.groups[name] for name in sorted(stream.groups)]
    # fmt: off
    return [
        Map([
            b"name",              group.name,
            b"consumers",         len(group.consumers),
            b"pending",           len(group.pending),
            b"last-delivered-id", ids.text(group.last_id),
            b"entries-read",      _known(group.entries_read),
            b"lag",               lag(stream, group),
        ])
        for group in groups
    ]
    # fmt: on


@command("xinfo|consumers", 4, "readonly", (2, 2, 1))
def xinfo_consumers(ctx: Context, args: list[bytes]) -> Reply:
    """XINFO CONSUMERS key group"""
    group = _stream(ctx, args[2]).groups.get(args[3])
    if group is None:
        raise no_such_group(args[2], args[3])
    # fmt: off
    return [
        Map([
            b"name",     consumer.name,
            b"pending",  group.pending.held_by(consumer.index),
            b"idle",     max(ctx.now - consumer.seen_time, 0),
            b"inactive", NEVER_ACTIVE if consumer.active_time == NEVER_ACTIVE
                         else max(ctx.now - consumer.active_time, 0),
        ])
        for consumer in group.listed()
    ]
    # fmt: on


@command("xinfo|help", 2, "loading stale", (0, 0, 0))
def xinfo_help(ctx: Context, args: list[bytes]) -> Reply:
    """XINFO HELP"""
    return [Status(line) for line in HELP]
