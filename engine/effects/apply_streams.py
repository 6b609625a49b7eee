"""Apply the stream effects to `Stream` objects.

Each function trusts its effect. Live, it reads no entry and cannot fail. In a replay, it may have to load the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tidelog.engine import idlist
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import Effect
from tidelog.engine.keys.state import State
from tidelog.engine.streams.idmp import Idmp
from tidelog.engine.streams.stream import Stream


def _existing(state: State, effect: Effect) -> Stream:
    stream: Stream = state.databases[effect[1]].keys[effect[2]]  # type: ignore[assignment]
    if stream.mark != state.changes.generation:
        state.changes.touch(stream)
    return stream


def _create(state: State, effect: Effect) -> Stream:
    keys = state.databases[effect[1]].keys
    stream = keys.get(effect[2])
    if stream is None:
        stream = keys[effect[2]] = Stream(state.next_stream_number)
        state.next_stream_number += 1
    if stream.mark != state.changes.generation:
        state.changes.touch(stream)
    return cast(Stream, stream)


def apply_xadd(state: State, effect: Effect) -> None:
    """XADD."""
    _existing(state, effect).append(effect[3] << 64 | effect[4], effect[5])


def apply_xadd_node(state: State, effect: Effect) -> None:
    """XADD_NODE."""
    _create(state, effect).start_node(effect[3] << 64 | effect[4], effect[5])


def apply_xadd_idmp(state: State, effect: Effect) -> None:
    """XADD_IDMP."""
    _, _, _, ms, seq, row, new_node, pid, iid, *time = effect
    entry_id = ms << 64 | seq
    stream = _create(state, effect)
    if new_node:
        stream.start_node(entry_id, row)
    else:
        stream.append(entry_id, row)
    idmp = _idmp(stream)
    idmp.record(pid, iid, entry_id, *time)
    idmp.expire(pid, *time or (ms,))


def apply_xadd_many(state: State, effect: Effect) -> None:
    """XADD_MANY."""
    _, _, _, ms, seq, head, blocks, tail = effect
    _create(state, effect).append_many(ms << 64 | seq, head, blocks, tail)


def apply_xreopen(state: State, effect: Effect) -> None:
    """XREOPEN."""
    _, _, _, ids, rows, deleted = effect
    mask = int.from_bytes(deleted, "little")
    _existing(state, effect).reopen(idlist.unpack(ids), list(rows), mask)


def apply_xtrim(state: State, effect: Effect) -> None:
    """XTRIM."""
    _, _, _, length, _, drop, floor, slots, _ = effect
    _existing(state, effect).trim(length, drop, floor, slots)


def apply_xdel(state: State, effect: Effect) -> None:
    """XDEL."""
    _, _, _, ids, slots = effect
    _existing(state, effect).delete(ids, slots)


def apply_xsetid(state: State, effect: Effect) -> None:
    """XSETID."""
    _, _, _, ms, seq, entries_added, deleted_ms, deleted_seq = effect
    _existing(state, effect).set_id(ms << 64 | seq, entries_added, deleted_ms << 64 | deleted_seq)


def apply_stream_create(state: State, effect: Effect) -> None:
    """STREAM_CREATE."""
    _create(state, effect)


def apply_xcfgset(state: State, effect: Effect) -> None:
    """XCFGSET."""
    _, _, _, duration, maxsize = effect
    _idmp(_existing(state, effect)).configure(duration, maxsize)


def apply_xidmprecord(state: State, effect: Effect) -> None:
    """XIDMPRECORD."""
    _, _, _, pid, iid, ms, seq, *time = effect
    _idmp(_existing(state, effect)).record(pid, iid, ms << 64 | seq, *time)


def apply_idmp_duplicate(state: State, effect: Effect) -> None:
    """IDMP_DUPLICATE."""
    _idmp(_existing(state, effect)).duplicates += 1


def _idmp(stream: Stream) -> Idmp:
    if stream.idmp is None:
        stream.idmp = Idmp()
    return stream.idmp


APPLY: dict[int, Callable[[State, Effect], None]] = {
    e.XADD: apply_xadd,
    e.XADD_NODE: apply_xadd_node,
    e.XADD_IDMP: apply_xadd_idmp,
    e.XADD_MANY: apply_xadd_many,
    e.XREOPEN: apply_xreopen,
    e.XTRIM: apply_xtrim,
    e.XDEL: apply_xdel,
    e.XSETID: apply_xsetid,
    e.XCFGSET: apply_xcfgset,
    e.XIDMPRECORD: apply_xidmprecord,
    e.IDMP_DUPLICATE: apply_idmp_duplicate,
    e.STREAM_CREATE: apply_stream_create,
}
