"""Prepare: bring into memory the pending entries that effects are about to change.

Apply must not find a damaged chunk half way. So live, between deciding and logging a unit, whoever keeps cold rows
calls `prepare`; what is damaged raises CorruptBlock there, and nothing has changed. A replay need not: it stops at
damage anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.engine import effects as e
from tidelog.engine.effects import Effect
from tidelog.engine.group import Group
from tidelog.engine.idlist import IdList
from tidelog.engine.pending import NOBODY
from tidelog.engine.state import State
from tidelog.engine.stream import Stream

_CHANGING = frozenset({e.XCLAIM, e.XACK, e.XNACK, e.XACKDEL, e.XGROUP_DELCONSUMER, e.XGROUP_SETID})


def prepare(state: State, effects: Sequence[Effect]) -> None:
    """Make ready for the effects of one unit, or raise CorruptBlock. Costs nothing where all is in memory."""
    before: dict[int, list[IdList]] = {}  # by id of a group: what the effects so far name in it
    for effect in effects:
        opcode = effect[0] & e.OPCODE
        if opcode not in _CHANGING:
            continue
        stream = state.databases[effect[1]].keys.get(effect[2])
        group = stream.groups.get(effect[3]) if isinstance(stream, Stream) else None
        if group is None or not group.pending.away:
            continue
        if opcode == e.XGROUP_SETID:
            continue  # a lost group said so by now
        if opcode == e.XGROUP_DELCONSUMER:
            _drop(group, effect[4], alone=len(effects) == 1)
            continue
        named = before.setdefault(id(group), [])
        if opcode in (e.XACK, e.XACKDEL):
            ids = effect[4]
            group.pending.prepare_remove(ids)
        elif opcode == e.XNACK:
            ids = effect[4]
            group.pending.prepare_deliver(ids, NOBODY, 0, named)
        else:
            ids = effect[5]
            consumer = group.consumers.get(effect[4])
            owner = None if consumer is None else consumer.index
            group.pending.prepare_deliver(ids, owner, effect[6], named)
        named.append(ids)


def _drop(group: Group, name: bytes, alone: bool) -> None:
    consumer = group.consumers.get(name)
    if consumer is None:
        return
    if alone:
        group.pending.prepare_drop(consumer.index)
    elif group.pending.held_by(consumer.index):
        group.pending.load_all()  # what else the unit does may go anywhere then
