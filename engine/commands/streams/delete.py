"""XDEL and XDELEX (spec 5.4, 5.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.engine import idlist, ids
from tidelog.engine.commands.context import Context
from tidelog.engine.commands.streams.references import (
    ACKED,
    DELREF,
    POLICIES,
    drop_references,
    referenced,
)
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import XACK, XACKDEL, XDEL
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import read_int64
from tidelog.engine.reply import Reply
from tidelog.engine.streams.stream import Stream

NUMIDS: Final = b"ERR Number of IDs must be a positive integer"
NUMIDS_MISMATCH: Final = b"ERR The `numids` parameter must match the number of arguments"
NO_IDS: Final = b"ERR IDS option is required"

NOT_FOUND: Final = -1
DELETED: Final = 1
STILL_REFERENCED: Final = 2


def log_delete(ctx: Context, key: bytes, stream: Stream, entry_ids: Iterable[int]) -> int:
    """Append one XDEL for those IDs that exist, if any. Returns their number. May raise CorruptBlock."""
    found, slots = stream.places(sorted(set(entry_ids)))
    if found:
        ctx.effects.append((XDEL, ctx.db, key, idlist.pack(found), tuple(slots)))
    return len(found)


def log_acked(
    ctx: Context, key: bytes, stream: Stream, name: bytes, acked: idlist.IdList, doomed: list[int]
) -> None:
    """Log that a group acknowledges `acked`, and the deletion of those of `doomed` that exist. May raise CorruptBlock.

    `doomed` is a subset of `acked`. Both ascend and have no duplicates.
    """
    found, slots = stream.places(doomed)
    if len(found) == idlist.count(acked):
        ctx.effects.append((XACKDEL, ctx.db, key, name, acked, tuple(slots)))
        return
    ctx.effects.append((XACK, ctx.db, key, name, acked))
    if found:
        ctx.effects.append((XDEL, ctx.db, key, idlist.pack(found), tuple(slots)))


@command("xdel", -3, "write fast")
def xdel(ctx: Context, args: list[bytes]) -> Reply:
    """XDEL key id [id ...]"""
    stream = ctx.stream(args[1])
    if stream is None:
        return 0
    return log_delete(ctx, args[1], stream, ids.parse_many(args[2:]))


def parse_policy_and_ids(args: list[bytes], at: int) -> tuple[bytes | None, list[bytes]]:
    """Parse `[policy] IDS numids id ...` from `at` on, in any order: (policy, ID arguments). Raises CommandError."""
    policy: bytes | None = None
    listed: list[bytes] | None = None
    while at < len(args):
        word = args[at].upper()
        if word in POLICIES and policy is None:
            policy = word
            at += 1
        elif word == b"IDS" and listed is None and at + 1 < len(args):
            count = read_int64(args[at + 1])
            if count is None or count < 1:
                raise CommandError(NUMIDS)
            if count > len(args) - at - 2:
                raise CommandError(NUMIDS_MISMATCH)
            listed = args[at + 2 : at + 2 + count]
            at += 2 + count
        else:
            raise CommandError(SYNTAX)
    if listed is None:
        raise CommandError(NO_IDS)
    return policy, listed


@command("xdelex", -5, "write fast")
def xdelex(ctx: Context, args: list[bytes]) -> Reply:
    """XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]"""
    key = args[1]
    stream = ctx.stream(key)
    policy, listed = parse_policy_and_ids(args, 2)
    if stream is None:
        return [NOT_FOUND] * len(listed)
    entry_ids = ids.parse_many(listed)
    results: list[int] = []
    doomed: set[int] = set()
    for entry_id in entry_ids:
        if policy == ACKED and referenced(stream, entry_id):
            results.append(STILL_REFERENCED)
        elif entry_id in doomed or not stream.contains(entry_id):
            results.append(NOT_FOUND)
        else:
            doomed.add(entry_id)
            results.append(DELETED)
    if policy == DELREF:
        drop_references(ctx, key, stream, sorted(set(entry_ids)))
    log_delete(ctx, key, stream, doomed)
    return results
