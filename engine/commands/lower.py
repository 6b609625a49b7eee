"""Lower: effects of Redis 8.x commands as commands that Redis 7.0 understands.

`engine.effects.as_commands` is the form for a Redis that knows them all. Most effects have the same form for 7.0; the
others are in the table below, with what the older form cannot carry. `lost` counts it by kind and key, once for each
record, entry or ID.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine import idlist
from tidelog.engine.commands.rewrite import Kind, Lost
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.as_commands import Command, commands
from tidelog.engine.effects.effect import OPCODE, Effect


def lowered(effect: Effect, lost: Lost) -> list[Command]:
    """The commands for Redis 7.0 that come closest to the effect; [] if there are none. Raises as `commands`."""
    form = _FORMS.get(effect[0] & OPCODE)
    return commands(effect) if form is None else form(effect, lost)


def _xadd_idmp(effect: Effect, lost: Lost) -> list[Command]:
    lost.add(Kind.DEDUP, effect[1], effect[2])
    return commands(effect)[:1]  # the XADD without the XIDMPRECORD


def _dedup(effect: Effect, lost: Lost) -> list[Command]:
    lost.add(Kind.DEDUP, effect[1], effect[2])
    return []


def _xtrim(effect: Effect, lost: Lost) -> list[Command]:
    _, db, key, length, _, _, _, _, ids = effect
    trim: Command = [b"XTRIM", key, b"MAXLEN", b"=", b"%d" % length]
    texts = idlist.texts(ids)
    if not texts:
        return [trim]
    # When the entries behind older ones are gone, the rest of the trim is at the head.
    lost.add(Kind.MAX_DELETED, db, key, len(texts))
    return [[b"XDEL", key, *texts], trim]


def _xnack(effect: Effect, lost: Lost) -> list[Command]:
    # As the rewrite of a state: the entries get an owner with an empty name, so that consumers can claim them.
    _, db, key, group, ids, counts = effect
    texts = idlist.texts(ids)
    each_count = counts if isinstance(counts, (tuple, list)) else [counts] * len(texts)
    lost.add(Kind.NACKED, db, key, len(texts))
    return [
        [b"XCLAIM", key, group, b"", b"0", entry_id]
        + [b"TIME", b"0", b"RETRYCOUNT", b"%d" % count, b"JUSTID", b"FORCE"]
        for entry_id, count in zip(texts, each_count, strict=True)
    ]


_FORMS: Final[dict[int, Callable[[Effect, Lost], list[Command]]]] = {
    e.XADD_IDMP: _xadd_idmp,
    e.XCFGSET: _dedup,
    e.XIDMPRECORD: _dedup,
    e.XTRIM: _xtrim,
    e.XNACK: _xnack,
}
