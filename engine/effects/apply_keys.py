"""Apply the key effects to the tables of keys, strings and expiries, and apply the EPOCH effect.

Each function trusts its effect (engine.effects.effect) and cannot fail live. All maintain `state.next_expiry`. A key
that is not in memory is loaded before it changes. Live, decide has loaded it already, so only replay reads here.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import Effect
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.expiries import NEVER
from tidelog.engine.keys.state import Database, State
from tidelog.engine.keys.values import RawString
from tidelog.engine.rdb.errors import RdbError
from tidelog.engine.rdb.restore import restored
from tidelog.engine.streams.stream import Stream


def apply_epoch(state: State, effect: Effect) -> None:
    state.epoch = effect[1]


def apply_del(state: State, effect: Effect) -> None:
    _, db, keys = effect
    database = state.databases[db]
    database.keys.drop(keys)
    if database.expires.count and database.expires.drop_all(keys) <= state.next_expiry:
        state.find_next_expiry()


def apply_set(state: State, effect: Effect) -> None:
    _, db, key, value, expire_at = effect
    database = state.databases[db]
    database.keys[key] = value
    _set_expiry(state, database, key, expire_at)


def apply_restore(state: State, effect: Effect) -> None:
    _, db, key, kind, data, expire_at = effect
    number = state.next_stream_number
    try:
        value, _ = restored(kind, data, number)
    except RdbError as error:  # only in a replay: decide has built the value once
        raise CorruptBlock(f"the value that RESTORE stored at {key!r}: {error}") from None
    if value.__class__ is Stream:
        state.next_stream_number = number + 1
        state.changes.touch(value)
    database = state.databases[db]
    database.keys[key] = value
    _set_expiry(state, database, key, expire_at)


def apply_append(state: State, effect: Effect) -> None:
    _, db, key, suffix = effect
    keys = state.databases[db].keys
    before = keys.get(key)
    # As in Redis, OBJECT ENCODING is `raw` for a string that APPEND has extended, but not for one that APPEND has
    # created.
    keys[key] = suffix if before is None else RawString(before + suffix)


def apply_pexpireat(state: State, effect: Effect) -> None:
    _, db, key, at = effect
    database = state.databases[db]
    database.keys.change(key)
    _put_expiry(state, database, key, at)


def apply_persist(state: State, effect: Effect) -> None:
    _, db, key = effect
    database = state.databases[db]
    database.keys.change(key)
    _drop_expiry(state, database, key)


def apply_rename(state: State, effect: Effect) -> None:
    _, db, source, target = effect
    database = state.databases[db]
    _move(state, database, source, database, target)


def apply_move(state: State, effect: Effect) -> None:
    _, db, key, target_db = effect
    _move(state, state.databases[db], key, state.databases[target_db], key)


def apply_copy(state: State, effect: Effect) -> None:
    _, db, source, target_db, target = effect
    database, target_database = state.databases[db], state.databases[target_db]
    value = _copy(state, database.keys[source])
    if value.__class__ is Stream:
        state.changes.touch(value)
    target_database.keys[target] = value
    at = database.expires.get(source)
    if at is None:
        _drop_expiry(state, target_database, target)
    else:
        _put_expiry(state, target_database, target, at)


def apply_swapdb(state: State, effect: Effect) -> None:
    _, a, b = effect
    databases = state.databases
    databases[a], databases[b] = databases[b], databases[a]


def apply_flushdb(state: State, effect: Effect) -> None:
    state.databases[effect[1]].keys.end()
    state.databases[effect[1]] = state.new_database()
    state.find_next_expiry()


def apply_flushall(state: State, effect: Effect) -> None:
    for database in state.databases:
        database.keys.end()
    state.databases = [state.new_database() for _ in state.databases]
    state.next_expiry = NEVER


def _copy(state: State, value: Stream | bytes) -> Stream | bytes:
    """An independent copy. A stream is copied with groups, pending entries and dedup tables, under a new number."""
    if isinstance(value, bytes):
        return value
    number = state.next_stream_number
    state.next_stream_number = number + 1
    stream = value.copy(number)
    stream.groups = {name: group.copy() for name, group in value.groups.items()}
    return stream


def _move(
    state: State, database: Database, source: bytes, target_database: Database, target: bytes
) -> None:
    target_database.keys[target] = database.keys.take(source)
    at = database.expires.drop(source)
    if at == NEVER:
        _drop_expiry(state, target_database, target)
    else:
        _put_expiry(state, target_database, target, at)


def _set_expiry(state: State, database: Database, key: bytes, at: int) -> None:
    """Give a key this expiry; -1: none."""
    if at != -1:
        _put_expiry(state, database, key, at)
    else:
        _drop_expiry(state, database, key)


def _put_expiry(state: State, database: Database, key: bytes, at: int) -> None:
    before = database.expires.get(key, NEVER)
    database.expires.put(key, at)
    if at <= state.next_expiry:
        state.next_expiry = at
    elif before <= state.next_expiry:
        state.find_next_expiry()


def _drop_expiry(state: State, database: Database, key: bytes) -> None:
    if database.expires.count and database.expires.drop(key) <= state.next_expiry:
        state.find_next_expiry()


APPLY: dict[int, Callable[[State, Effect], None]] = {
    e.EPOCH: apply_epoch,
    e.DEL: apply_del,
    e.SET: apply_set,
    e.PEXPIREAT: apply_pexpireat,
    e.PERSIST: apply_persist,
    e.RENAME: apply_rename,
    e.COPY: apply_copy,
    e.MOVE: apply_move,
    e.SWAPDB: apply_swapdb,
    e.FLUSHDB: apply_flushdb,
    e.FLUSHALL: apply_flushall,
    e.APPEND: apply_append,
    e.RESTORE: apply_restore,
}
