"""Apply the group effects to `Group` objects.

Each function trusts its effect. Live, it reads no entry and cannot fail. In a replay, it may have to load the key.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import Effect
from tidelog.engine.groups.group import Group
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream


def _existing(state: State, effect: Effect) -> Stream:
    stream: Stream = state.databases[effect[1]].keys[effect[2]]  # type: ignore[assignment]
    if stream.mark != state.changes.generation:
        state.changes.touch(stream)
    return stream


def apply_xgroup_create(state: State, effect: Effect) -> None:
    """XGROUP_CREATE."""
    _, _, _, name, ms, seq, entries_read = effect
    stream = _existing(state, effect)
    stream.groups[name] = Group(name, ms << 64 | seq, entries_read, stream.next_group)
    stream.next_group += 1


def apply_xgroup_destroy(state: State, effect: Effect) -> None:
    """XGROUP_DESTROY."""
    del _existing(state, effect).groups[effect[3]]


def apply_to_group(group: Group, effect: Effect) -> None:
    """Apply an effect to an existing group. Not for XGROUP_CREATE, XGROUP_DESTROY and XACKDEL."""
    _IN_GROUP[effect[0] & e.OPCODE](group, effect)


def _setid(group: Group, effect: Effect) -> None:
    group.set_position(effect[4] << 64 | effect[5], effect[6])


def _createconsumer(group: Group, effect: Effect) -> None:
    group.create_consumer(effect[4], effect[5])


def _delconsumer(group: Group, effect: Effect) -> None:
    group.drop_consumer(effect[4])


def _deliver(group: Group, effect: Effect) -> None:
    group.deliver(*effect[4:])


def _xack(group: Group, effect: Effect) -> None:
    group.pending.remove(effect[4])


def apply_xackdel(state: State, effect: Effect) -> None:
    """XACKDEL."""
    _, _, _, name, ids, slots = effect
    stream = _existing(state, effect)
    stream.groups[name].pending.remove(ids)
    stream.delete(ids, slots)


def _xnack(group: Group, effect: Effect) -> None:
    group.pending.nack(effect[4], effect[5])


def _seen(group: Group, effect: Effect) -> None:
    names, now = effect[4], effect[5]
    if names.__class__ is bytes:
        group.consumers[names].seen_time = now
    else:
        for name in names:
            group.consumers[name].seen_time = now


_IN_GROUP: dict[int, Callable[[Group, Effect], None]] = {
    e.XGROUP_SETID: _setid,
    e.XGROUP_CREATECONSUMER: _createconsumer,
    e.XGROUP_DELCONSUMER: _delconsumer,
    e.DELIVER: _deliver,
    e.XACK: _xack,
    e.XNACK: _xnack,
    e.SEEN: _seen,
}


def _located(change: Callable[[Group, Effect], None]) -> Callable[[State, Effect], None]:
    def apply(state: State, effect: Effect) -> None:
        change(_existing(state, effect).groups[effect[3]], effect)

    return apply


APPLY: dict[int, Callable[[State, Effect], None]] = {
    e.XGROUP_CREATE: apply_xgroup_create,
    e.XGROUP_DESTROY: apply_xgroup_destroy,
    e.XACKDEL: apply_xackdel,
    **{opcode: _located(change) for opcode, change in _IN_GROUP.items()},
}
