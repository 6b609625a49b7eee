"""References: whether a group still needs an entry; for the policies KEEPREF, DELREF and ACKED (spec 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.engine import idlist
from tidelog.engine.commands.context import Context
from tidelog.engine.effects.effect import XACK
from tidelog.engine.streams.stream import Stream

KEEPREF: Final = b"KEEPREF"
DELREF: Final = b"DELREF"
ACKED: Final = b"ACKED"
POLICIES: Final = frozenset((KEEPREF, DELREF, ACKED))


def referenced(stream: Stream, entry_id: int) -> bool:
    """Whether any group has not read the ID yet, or has it pending. The entry need not exist."""
    return any(
        group.last_id < entry_id or group.pending.contains(entry_id)
        for group in stream.groups.values()
    )


def drop_references(
    ctx: Context, key: bytes, stream: Stream, ids: Sequence[int], acked_in: bytes | None = None
) -> bool:
    """Log one XACK for each group that has any of these IDs pending. Returns whether there was one.

    acked_in: a group to skip; the caller has already logged its XACK.
    """
    before = len(ctx.effects)
    if ids:
        for name, group in stream.groups.items():
            held = [] if name == acked_in else group.pending.among(ids)
            if held:
                ctx.effects.append((XACK, ctx.db, key, name, idlist.pack(held)))
    return len(ctx.effects) > before


def drop_references_below(ctx: Context, key: bytes, stream: Stream, end: int) -> None:
    """Log one XACK for each group that has an ID below `end` pending."""
    if not end:
        return
    for name, group in stream.groups.items():
        held = [row[0] for row in group.pending.page(0, end - 1, len(group.pending))]
        if held:
            ctx.effects.append((XACK, ctx.db, key, name, idlist.pack(held)))
