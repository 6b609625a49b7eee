"""Observe: which waiting or watched keys an effect concerns, determined by its opcode.

    signals   keys whose blocked readers must be decided again (spec 10.2)
    touches   keys whose change breaks a WATCH (spec 15)

Call both BEFORE the effect is applied: a flush or a swap concerns the keys that exist then. Both take the waited or
watched keys and return a subset of them, so the cost of a flush is proportional to those, not to the stored keys. If
there are none, the caller does not call at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.keyspace import Keyspace
from tidelog.engine.keys.state import State
from tidelog.engine.keys.waiting import DbKey

_Find = Callable[[Effect, State, Collection[DbKey]], Iterable[DbKey]]


def signals(effect: Effect, state: State, waited: Collection[DbKey]) -> list[DbKey]:
    """Those of `waited` that the effect may make ready, in the order Redis signals them."""
    find = SIGNALS.get(effect[0] & OPCODE)
    return [] if find is None else [at for at in find(effect, state, waited) if at in waited]


def touches(effect: Effect, state: State, watched: Collection[DbKey]) -> list[DbKey]:
    """Those of `watched` that the effect changes."""
    find = TOUCHES.get(effect[0] & OPCODE)
    return [] if find is None else [at for at in find(effect, state, watched) if at in watched]


def _key(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    return ((effect[1], effect[2]),)


def _each_key(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    return [(effect[1], key) for key in effect[2]]


def _renamed(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    _, db, source, target = effect
    return (db, target), (db, source)


def _copied(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    _, _, _, target_db, target = effect
    return ((target_db, target),)


def _moved(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    _, db, key, target_db = effect
    return (target_db, key), (db, key)


def _swapped(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    _, a, b = effect
    sides = state.databases[a].keys, state.databases[b].keys
    return [at for at in places if at[0] in (a, b) and any(_there(keys, at[1]) for keys in sides)]


def _flushed(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    keys = state.databases[effect[1]].keys
    return [at for at in places if at[0] == effect[1] and _there(keys, at[1])]


def _all_flushed(effect: Effect, state: State, places: Collection[DbKey]) -> Iterable[DbKey]:
    return [at for at in places if _there(state.databases[at[0]].keys, at[1])]


def _there(keys: Keyspace, key: bytes) -> bool:
    """Whether a key exists. True if its row is damaged: it may exist, and it is too late to raise an error."""
    try:
        return key in keys
    except CorruptBlock:
        return True


# fmt: off
SIGNALS: dict[int, _Find] = {
    e.XADD:           _key,
    e.XADD_NODE:      _key,
    e.XADD_IDMP:      _key,
    e.XADD_MANY:      _key,
    e.XGROUP_DESTROY: _key,
    e.XNACK:          _key,
    e.DEL:            _each_key,
    e.SET:            _key,
    e.RENAME:         _renamed,
    e.COPY:           _copied,
    e.MOVE:           _moved,
    e.SWAPDB:         _swapped,
    e.FLUSHDB:        _flushed,
    e.FLUSHALL:       _all_flushed,
    e.RESTORE:        _key,
}

TOUCHES: dict[int, _Find] = {
    e.XADD:           _key,
    e.XADD_NODE:      _key,
    e.XADD_IDMP:      _key,
    e.XADD_MANY:      _key,
    e.XTRIM:          _key,
    e.XDEL:           _key,
    e.XACKDEL:        _key,
    e.STREAM_CREATE:  _key,
    e.DEL:            _each_key,
    e.SET:            _key,
    e.PEXPIREAT:      _key,
    e.PERSIST:        _key,
    e.RENAME:         _renamed,
    e.COPY:           _copied,
    e.MOVE:           _moved,
    e.SWAPDB:         _swapped,
    e.FLUSHDB:        _flushed,
    e.FLUSHALL:       _all_flushed,
    e.APPEND:         _key,
    e.RESTORE:        _key,
}
# fmt: on
