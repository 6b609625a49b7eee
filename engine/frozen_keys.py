"""Frozen keys: the key side of one checkpoint in flight.

A freeze takes away the sets of changed keys. What those keys hold is copied afterwards, slice by slice under the
lock, and a key that changes again before its turn is copied then. So the freeze itself costs nothing, and what
is written is the state at the freeze. Strings and stream numbers are immutable: a copy is a reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidelog.engine import keyrow
from tidelog.engine.changes import Table
from tidelog.engine.cold import ColdStore
from tidelog.engine.keyrow import NO_EXPIRY
from tidelog.engine.keyspace import Keyspace, resident
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
from tidelog.engine.stream import Stream

if TYPE_CHECKING:
    from tidelog.engine.state import State

# A key, what it held (a string, a stream's number, None: it was not there), and when it expired or NO_EXPIRY.
_Copy = tuple[bytes, "bytes | int | None", int]


class FrozenTable:
    """The keys of one table that changed before the freeze.

    names   these keys; looked at by `Table` too, and never changed
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
        self._kept: dict[bytes, _Copy] = {}  # copied before their turn
        self.taken: deque[_Copy] = deque()

    def keep(self, key: bytes) -> None:
        """A key is about to change, the first time since the freeze."""
        if self.left and key in self.names:
            self._kept[key] = self._copy(key)

    def take_some(self, limit: int) -> int:
        """Copy up to `limit` keys. How many there were."""
        keys, kept, take = self._keys, self._kept, self.taken.append
        expire_at = keys.expires.get
        names = list(islice(self._left, limit))
        for key in names:
            if key in kept:
                take(kept.pop(key))
            else:  # as `_copy`, a call less
                value = resident(keys, key)
                held = value.number if isinstance(value, Stream) else value
                take((key, held, expire_at(key, NO_EXPIRY)))
        self.left -= len(names)
        return len(names)

    def _copy(self, key: bytes) -> _Copy:
        # What changed and was not written yet is in memory, or gone.
        value = resident(self._keys, key)
        held = value.number if isinstance(value, Stream) else value
        return key, held, self._keys.expires.get(key, NO_EXPIRY)

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """What the rows of the keys taken so far become."""
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
    """All keys that changed, and all tables that were flushed, before one freeze."""

    def __init__(self, state: State) -> None:
        """[lock] O(databases)."""
        self._tables = [FrozenTable(database.keys) for database in state.databases]
        self._tables_ended = state.changes.tables_ended
        self._to_end = self._tables_ended
        state.changes.tables_ended = []

    def take_some(self, limit: int) -> int:
        """[lock] Copy up to `limit` keys. How many are left."""
        for table in self._tables:
            if limit and table.left:
                limit -= table.take_some(limit)
        return sum([table.left for table in self._tables])

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        """What becomes of the rows: of flushed tables at the first call, of the keys taken since the last call.

        Needs no lock. `read` is what the checkpoint holds.
        """
        to_end, self._to_end = self._to_end, []
        for number, changed in to_end:
            # Streams that were in memory ended one by one; the others end here, where their key still told of them.
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
        """[lock] The checkpoint is committed: its rows are the truth about these keys."""
        for frozen in self._tables:
            _release(frozen.table)

    def thaw(self, state: State) -> None:
        """[lock] The checkpoint failed: what changed before counts as changed now. O(what changed)."""
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
