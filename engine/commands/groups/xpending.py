"""XPENDING: list the pending entries of a group (spec 7.8)."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.groups.grouping import find_group, idle_cutoff
from tidelog.engine.commands.table import command
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.groups.group import Group
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.integers import int64
from tidelog.engine.reply import NULL_ARRAY, Reply

ARGS_MAX = 9  # as in Redis, surplus arguments up to this total are ignored


@command("xpending", -3, "readonly")
def xpending(ctx: Context, args: list[bytes]) -> Reply:
    """XPENDING key group [[IDLE min-idle-time] start end count [consumer]]"""
    if len(args) == 3:
        _, group = find_group(ctx, args[1], args[2])
        return _summary(group)
    if not 6 <= len(args) <= ARGS_MAX:
        raise CommandError(SYNTAX)
    at = 3
    idle_ms_min = 0
    if args[3].upper() == b"IDLE":
        idle_ms_min = int64(args[4])
        if len(args) < 8:
            raise CommandError(SYNTAX)
        at = 5
    count = int64(args[at + 2])
    start = ids.parse_start(args[at])
    end = ids.parse_end(args[at + 1])
    _, group = find_group(ctx, args[1], args[2])
    owner: int | None = None
    if at + 3 < len(args):
        consumer = group.consumers.get(args[at + 3])
        if consumer is None:
            return []
        owner = consumer.index
    time_max = idle_cutoff(ctx.now, idle_ms_min) if idle_ms_min > 0 else None
    return [
        [
            ids.text(entry_id),
            group.owner_name(holder),
            -1 if holder == NOBODY else max(ctx.now - time, 0),
            deliveries,
        ]
        for entry_id, time, holder, deliveries in group.pending.page(
            start, end, count, owner, time_max
        )
    ]


def _summary(group: Group) -> Reply:
    pending = group.pending
    if not len(pending):
        return [0, None, None, NULL_ARRAY]
    held = [(consumer.name, pending.held_by(consumer.index)) for consumer in group.listed()]
    return [
        len(pending),
        ids.text(pending.first()),
        ids.text(pending.last()),
        [[name, b"%d" % number] for name, number in held if number],
    ]
