"""Prepare: load the pending entries that a unit's effects will change.

Apply must not fail half way on a damaged chunk. So a store with cold rows calls `prepare` after it has decided a unit
and before it logs the unit. Damage raises CorruptBlock there, before anything has changed. Replay does not call it,
since it stops at damage anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import Effect
from tidelog.engine.groups.group import Group
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.idlist import IdList
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream

_CHANGING = frozenset({e.DELIVER, e.XACK, e.XNACK, e.XACKDEL, e.XGROUP_DELCONSUMER, e.XGROUP_SETID})


def prepare(state: State, effects: Sequence[Effect]) -> None:
    """Load what the effects of one unit will change. May raise CorruptBlock. Does nothing if all is resident."""
    before: dict[int, list[IdList]] = {}  # id(group) -> the IDs in the effects visited so far
    for effect in effects:
        opcode = effect[0] & e.OPCODE
        if opcode not in _CHANGING:
            continue
        stream = state.databases[effect[1]].keys.get(effect[2])
        group = stream.groups.get(effect[3]) if isinstance(stream, Stream) else None
        if group is None or not group.pending.orders.away:
            continue
        if opcode == e.XGROUP_SETID:
            continue  # a damaged group has already raised
        if opcode == e.XGROUP_DELCONSUMER:
            _drop(group, effect[4], alone=len(effects) == 1)
            continue
        named = before.setdefault(id(group), [])
        if opcode in (e.XACK, e.XACKDEL):
            ids = effect[4]
            group.pending.orders.prepare_remove(ids)
        elif opcode == e.XNACK:
            ids = effect[4]
            group.pending.orders.prepare_deliver(ids, NOBODY, 0, named)
        else:
            ids = effect[5]
            consumer = group.consumers.get(effect[4])
            owner = None if consumer is None else consumer.index
            group.pending.orders.prepare_deliver(ids, owner, effect[6], named)
        named.append(ids)


def _drop(group: Group, name: bytes, alone: bool) -> None:
    consumer = group.consumers.get(name)
    if consumer is None:
        return
    if alone:
        group.pending.orders.prepare_drop(consumer.index)
    elif group.pending.held_by(consumer.index):
        group.pending.orders.load_all()  # the unit's other effects may change any chunk
