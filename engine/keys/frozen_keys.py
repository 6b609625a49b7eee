"""Frozen keys: the keys in one checkpoint in flight.

A freeze only takes the sets of changed keys, so its cost does not depend on their number. The values are copied
afterwards, slice by slice under the lock, and a key that changes before its turn is copied right before the change. So
the rows hold the state at the freeze. Strings and stream numbers are immutable: a copy is a reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tidelog.engine.cold import ColdStore
from tidelog.engine.keys import keyrow
from tidelog.engine.keys.changes import Table
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.keyspace import Keyspace, resident
from tidelog.engine.keys.state import State
from tidelog.engine.rowkeys import (
    KIND_STREAM,
    REST,
    Operation,
    expiry_prefix,
    expiry_row,
    key_prefix,
    key_row,
    stream_prefixes,
)
from tidelog.engine.streams.stream import Stream

# (key, value, expire_at). value: the string, the stream's number, or None if the key did not exist. expire_at: unix ms
# or NO_EXPIRY.
_Copy = tuple[bytes, "bytes | int | None", int]


class FrozenTable:
    """The keys of one table that changed before the freeze.

    names   these keys; shared with `Table`, and never changed
    taken   copies whose rows are still to be made
    left    number of keys that are still to be copied
    """

    __slots__ = ("table", "names", "_keys", "_left", "_kept", "taken", "left")

    def __init__(self, keys: Keyspace) -> None:
        table = keys.table
        self.table = table
        self.names = table.frozen = table.changed
        table.changed = {}
        table.keeper = self
        self._keys = keys
        self.left = len(self.names)
        self._left = iter(self.names)
        self._kept: dict[bytes, _Copy] = {}  # keys copied before their turn
        self.taken: deque[_Copy] = deque()

    def keep(self, key: bytes) -> None:
        """Copy a key that is about to change for the first time since the freeze."""
        if self.left and key in self.names:
            self._kept[key] = self._copy(key)

    def take_some(self, limit: int) -> int:
        """Copy up to `limit` keys. Return how many were copied."""
        keys, kept, take = self._keys, self._kept, self.taken.append
        expire_at = keys.expires.get
        names = list(islice(self._left, limit))
        for key in names:
            if key in kept:
                take(kept.pop(key))
            else:  # `_copy` inlined
                value = resident(keys, key)
                held = value.number if isinstance(value, Stream) else value
                take((key, held, expire_at(key, NO_EXPIRY)))
        self.left -= len(names)
        return len(names)

    def _copy(self, key: bytes) -> _Copy:
        # A changed key whose row is not written yet is either in memory or deleted, so do not look in the checkpoint.
        value = resident(self._keys, key)
        held = value.number if isinstance(value, Stream) else value
        return key, held, self._keys.expires.get(key, NO_EXPIRY)

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """The operations on the rows of the keys copied since the last call."""
        number = self.table.number
        while self.taken:
            key, held, expire_at = self.taken.popleft()
            name = key_row(number, key)
            row = read.get(name)
            before = NO_EXPIRY if row is None else keyrow.unpack_of(row, key)[0]
            if before not in (NO_EXPIRY, expire_at):
                yield "delete", expiry_row(number, before, key)
            if held is None:
                if row is not None:
                    yield "delete", name
                continue
            yield "put", name, keyrow.pack(key, expire_at, held)
            if expire_at not in (NO_EXPIRY, before):
                yield "put", expiry_row(number, expire_at, key), key


class FrozenKeys:
    """All keys that changed and all tables that were flushed before one freeze, since the previous one."""

    def __init__(self, state: State) -> None:
        """[lock] O(databases)."""
        self._tables = [FrozenTable(database.keys) for database in state.databases]
        self._tables_ended = state.changes.tables_ended
        self._to_end = self._tables_ended
        state.changes.tables_ended = []

    def take_some(self, limit: int) -> int:
        """[lock] Copy up to `limit` keys. Return how many are left."""
        for table in self._tables:
            if limit and table.left:
                limit -= table.take_some(limit)
        return sum([table.left for table in self._tables])

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """The operations on rows: of flushed tables at the first call, and of the keys copied since the last call.

        Needs no lock. `read` is the checkpoint being updated. May raise CorruptBlock.
        """
        to_end, self._to_end = self._to_end, []
        for number, changed in to_end:
            # The table was flushed, so delete the rows of its streams, except streams whose KEY row is damaged. Streams
            # that were in memory are not deleted here: `Changes.ended` names them.
            for _, row in read.rows(key_prefix(number)):
                yield REST
                key, (_, kind, held) = keyrow.unpack(row)
                if kind == KIND_STREAM and key not in changed:
                    for prefix in stream_prefixes(held):
                        yield "delete_prefix", prefix
            yield "delete_prefix", key_prefix(number)
            yield "delete_prefix", expiry_prefix(number)
        for table in self._tables:
            yield from table.rows(read)

    def settle(self) -> None:
        """[lock] The checkpoint is committed: the rows of these keys are valid again."""
        for frozen in self._tables:
            _release(frozen.table)

    def thaw(self, state: State) -> None:
        """[lock] The checkpoint failed: its keys count as changed again. O(changed keys)."""
        names: dict[int, Any] = {}
        for frozen in self._tables:
            table = frozen.table
            names[table.number] = frozen.names
            table.changed = {**frozen.names, **table.changed}
            _release(table)
        since = state.changes.tables_ended
        state.changes.tables_ended = self._tables_ended
        for number, changed in since:
            self._tables_ended.append((number, {*names.get(number, ()), *changed}))


def _release(table: Table) -> None:
    table.frozen = {}
    table.keeper = None
