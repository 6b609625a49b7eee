"""XACK and XACKDEL: acknowledge pending entries (spec 7.3, 7.4)."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.delete import (
    DELETED,
    NOT_FOUND,
    STILL_REFERENCED,
    log_acked,
    parse_policy_and_ids,
)
from tidelog.engine.commands.streams.references import ACKED, DELREF, drop_references
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XACK
from tidelog.engine.fast_path import fast_path
from tidelog.engine.idargs import id_list
from tidelog.engine.idlist import count, last_id, pack, unpack
from tidelog.engine.reply import Reply
from tidelog.engine.streams.stream import Stream


@command("xack", -4, "write fast")
def xack(ctx: Context, args: list[bytes]) -> Reply:
    """XACK key group id [id ...]"""
    _, key, name, *named = args
    stream = ctx.stream(key)
    group = None if stream is None else stream.groups.get(name)
    if group is None:
        return 0
    ids, pending = id_list(named), group.pending
    if not len(pending):  # no look-up, however many IDs are named
        return 0
    held = pending.present(ids)
    if not held:
        return 0
    ctx.effects.append((XACK, ctx.db, key, name, held))
    return 1 if len(named) == 1 else count(held)


@command("xackdel", -6, "write fast")
@fast_path(
    of="engine.commands.groups.ack:_ackdel_each",
    held_by="tests/engine/test_fast_paths.py::test_to_acknowledge_and_delete_at_once_is_to_do_both_one_by_one",
)
def xackdel(ctx: Context, args: list[bytes]) -> Reply:
    """XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]"""
    key, name = args[1], args[2]
    stream = ctx.stream(key)
    policy, listed = parse_policy_and_ids(args, 3)
    if stream is None or name not in stream.groups:
        return [NOT_FOUND] * len(listed)
    group = stream.groups[name]
    pending = group.pending
    named = id_list(listed)
    unneeded = policy != ACKED or (len(stream.groups) == 1 and group.last_id >= last_id(named))
    if unneeded and pending.present(named) == named:
        # In the common case all IDs are pending, in ascending order, and can be deleted. Then no ID needs its own
        # lookup.
        entry_ids = unpack(named)
        log_acked(ctx, key, stream, name, named, entry_ids)
        if policy == DELREF:
            drop_references(ctx, key, stream, entry_ids, name)
        return [DELETED] * len(entry_ids)
    return _ackdel_each(ctx, key, stream, name, policy, unpack(named))


def _ackdel_each(
    ctx: Context,
    key: bytes,
    stream: Stream,
    name: bytes,
    policy: bytes | None,
    entry_ids: list[int],
) -> list[Reply]:
    """Decide an XACKDEL of any IDs, one by one."""
    results: list[Reply] = []
    acked: set[int] = set()
    doomed: list[int] = []
    pending = stream.groups[name].pending
    for entry_id in entry_ids:
        if entry_id in acked or not pending.contains(entry_id):
            results.append(NOT_FOUND)
            continue
        acked.add(entry_id)
        if policy == ACKED and still_referenced(stream, name, entry_id):
            results.append(STILL_REFERENCED)
        else:
            results.append(DELETED)
            doomed.append(entry_id)
    if acked:
        log_acked(ctx, key, stream, name, pack(sorted(acked)), sorted(doomed))
    if policy == DELREF:
        drop_references(ctx, key, stream, sorted(acked), name)
    return results


def still_referenced(stream: Stream, acked_in: bytes, entry_id: int) -> bool:
    """Whether a group still references an entry that group `acked_in` has just acknowledged (spec 5.2)."""
    return any(
        group.last_id < entry_id or (name != acked_in and group.pending.contains(entry_id))
        for name, group in stream.groups.items()
    )
