"""Keyspace: the keys of one database, and the order in which SCAN walks them.

The dict holds the resident keys, and it takes precedence over the checkpoint. A key that is not resident is read from
the checkpoint (engine.cold), unless it changed since; its value and expiry then stay in memory until `evict`. A key is
also loaded before it changes. So a key that changed and is not in memory does not exist.

SCAN needs an order that does not depend on the inserts and deletes between two of its calls. So keys are ordered by
their *place*, a number computed from the name alone, and a cursor is the place to continue from. The server keeps no
state for it, a cursor survives a restart, and a key that exists during a whole scan is returned exactly once.

The first SCAN builds the sorted places, and later changes maintain them; a store that never scans pays nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.keys import keyrow
from tidelog.engine.keys.changes import Table
from tidelog.engine.keys.expiries import NEVER, Expiries
from tidelog.engine.keys.keyrow import NO_EXPIRY, KeyRow
from tidelog.engine.rowkeys import KIND_STREAM, PLACE_BYTES, key_prefix, key_row, place_hash
from tidelog.engine.streams.frozen_stream import load_stream
from tidelog.engine.streams.stream import Stream

Value = Stream | bytes

# target number of keys in a chunk of the order; a chunk of more than twice as many is split
CHUNK = 256
# Cursors stay below this number, so a double holds them exactly. Some clients have no other number type.
PLACES = 1 << 52
_SURPLUS_BITS = 12
resident = dict.get  # resident(keyspace, key): the value in memory, or None
_residents = dict.__len__
_is_resident = dict.__contains__
assert PLACES == 1 << 8 * PLACE_BYTES - _SURPLUS_BITS


def place(key: bytes) -> int:
    """The place of a key in the order of SCAN, 1 to PLACES inclusive; the same in every process and version."""
    return _place(_spot(key))


def _spot(key: bytes) -> bytes:
    """Hash and key in one bytes object: these sort by place, and the garbage collector does not visit them.

    The hash is uniform and collision-resistant, since one reply returns all keys of a place.
    """
    return place_hash(key) + key


def _place(spot: bytes) -> int:
    return (int.from_bytes(spot[:PLACE_BYTES], "big") >> _SURPLUS_BITS) + 1


def _start(first: int) -> bytes:
    """Bytes that sort before all spots of this place and later ones, and after all others."""
    return (max(first - 1, 0) << _SURPLUS_BITS).to_bytes(PLACE_BYTES, "big")


class Order:
    """Names in the order of their places: sorted chunks of spots. `_lasts` has the last spot of each chunk."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self, names: Iterable[bytes]) -> None:
        spots = sorted(map(_spot, names))
        self._chunks = [spots[at : at + CHUNK] for at in range(0, len(spots), CHUNK)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def add(self, name: bytes) -> None:
        """Add a name that is not in the order."""
        spot = _spot(name)
        if not self._chunks:
            self._chunks.append([])
            self._lasts.append(spot)
        index = min(bisect_left(self._lasts, spot), len(self._chunks) - 1)
        chunk = self._chunks[index]
        insort(chunk, spot)
        if len(chunk) > 2 * CHUNK:
            self._chunks.insert(index, chunk[:CHUNK])
            self._lasts.insert(index, chunk[CHUNK - 1])
            del chunk[:CHUNK]
            index += 1
        self._lasts[index] = chunk[-1]

    def remove(self, name: bytes) -> None:
        """Remove a name that is in the order."""
        spot = _spot(name)
        index = bisect_left(self._lasts, spot)
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, spot)]
        if chunk:
            self._lasts[index] = chunk[-1]
        else:
            del self._chunks[index], self._lasts[index]

    def since(self, first: int) -> Iterator[tuple[int, bytes]]:
        """(place, name) of all names whose place is at least `first`, ascending."""
        if first > PLACES:
            return
        start = _start(first)
        for index in range(bisect_left(self._lasts, start), len(self._chunks)):
            chunk = self._chunks[index]
            for spot in chunk[bisect_left(chunk, start) :]:
                yield _place(spot), spot[PLACE_BYTES:]


class Keyspace(dict[bytes, Value]):
    """Key -> value, with `scan`. Change it only through item assignment, `del`, `pop`, `drop`, `take` and `end`.

    `keys[key]` of a resident key costs as much as in a dict; every other lookup costs one more Python call. All may
    raise CorruptBlock.

    count       number of keys, in memory or not
    table       which keys changed since the last freeze, and the number of the table in the checkpoint
    expires     their expiry times
    accessed    key -> unix ms of the last command that named it (OBJECT IDLETIME)
    lost        key -> number of its stream whose row cannot be read, for the command that deletes or replaces it

    Decide writes the last two. They are not state: not logged, not part of a digest, and empty after each open.
    """

    __slots__ = ("_order", "accessed", "lost", "count", "table", "expires")

    def __init__(
        self, table: Table | None = None, expires: Expiries | None = None, count: int = 0
    ) -> None:
        super().__init__()
        self.table = Table() if table is None else table
        self.expires = Expiries(self.table) if expires is None else expires
        self.count = count
        self.accessed: dict[bytes, int] = {}
        self.lost: dict[bytes, int] = {}
        self._order: Order | None = None  # of the resident keys; built at the first SCAN

    # --- looking

    def __missing__(self, key: bytes) -> Value:
        value = self.load(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: bytes, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        value = resident(self, key)
        if value is None:
            value = self.load(key)
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        return _is_resident(self, key) or self._cold_row(key) is not None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.count

    @property
    def complete(self) -> bool:
        """Whether every key is in memory, so that a key not found there does not exist."""
        return self.count == _residents(self)

    def __iter__(self) -> Iterator[bytes]:
        """All keys, in no particular order. The caller may load keys meanwhile, but not change any."""
        if self.count == _residents(self):
            return super().__iter__()
        return (key for key, _ in self.listed())

    def keys(self) -> Iterator[bytes]:  # type: ignore[override]
        return iter(self)

    def values(self) -> Iterator[Value]:  # type: ignore[override]
        """All values. One that is not in memory is read from the checkpoint and not kept."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[bytes, Value]]:  # type: ignore[override]
        """(key, value) of all keys; as `values`, it keeps nothing in memory."""
        return ((key, self.look(key)[0]) for key in self)

    def walk(self) -> Iterator[tuple[bytes, Value, int]]:
        """(key, value, expire_at or NO_EXPIRY) of all keys, ascending; it keeps nothing in memory."""
        # `iter` hides the length, for which `sorted` would take memory before it has seen a key: a damaged checkpoint
        # may state any number.
        return ((key, *self.look(key)) for key in sorted(iter(self)))

    def listed(self) -> Iterator[tuple[bytes, int]]:
        """(key, unix ms when it expires or NEVER) of all keys, in no particular order."""
        here = list(super().__iter__())
        expires = self.expires
        for key in here:
            yield key, expires.get(key, NEVER)
        if self.count > len(here):
            passed = set(here)
            for _, key, row in self._cold_since(b""):
                if key not in passed and self.table.stored(key):
                    yield key, NEVER if row[0] == NO_EXPIRY else row[0]

    def spread(self, pick: int) -> Iterator[bytes]:
        """All keys, each at least once, starting at a key selected by the number `pick`."""
        here = _residents(self)
        pick %= self.count or 1
        if pick < here or self.count == here:
            return chain(islice(self, pick, None), islice(self, pick))
        start = place_hash(pick.to_bytes(8, "big"))
        later = (key for _, key, _ in self._cold_since(start) if self._is_cold(key))
        return chain(later, self)

    def is_string(self, key: bytes) -> bool:
        """Whether an existing key holds a string. Loads nothing."""
        value = resident(self, key)
        if value is not None:
            return isinstance(value, bytes)
        row = self._cold_row(key)
        return row is not None and row[1] != KIND_STREAM

    def expire_at(self, key: bytes) -> int:
        """Unix ms when a key expires, or NEVER. Loads nothing."""
        at = self.expires.get(key)
        if at is None and self.expires.count and not _is_resident(self, key):
            row = self._cold_row(key)
            if row is not None and row[0] != NO_EXPIRY:
                return row[0]
        return NEVER if at is None else at

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """The next cursor (0 = done), and about `count` keys from `cursor` on (0 = the start).

        More than `count` keys only if several share a place.
        """
        if self._order is None:
            self._order = Order(super().__iter__())
        names: Iterator[tuple[int, bytes | None]] = self._order.since(cursor)
        if self.count > _residents(self) and cursor <= PLACES:
            names = merge(names, self._cold_places(cursor), key=itemgetter(0))
        found: list[bytes] = []
        passed = 0
        for at, key in names:
            if key is None:
                continue
            if len(found) >= count and at != passed:
                return at, found
            passed = at
            found.append(key)
        return 0, found

    # --- changing: called by apply alone

    def __setitem__(self, key: bytes, value: Value) -> None:
        before: Value | int | None = resident(self, key)
        if before is None and self.count != _residents(self):
            before = self._load_to_drop(key)
            if before.__class__ is int:
                self._end_lost(key)
                if self._order is not None:
                    self._order.add(key)
        if self.table.keeper is None:
            self.table.changed[key] = None  # `Table.change` inlined
        else:
            self.table.change(key)
        if before is None:
            self.count += 1
            if self._order is not None:
                self._order.add(key)
        elif before.__class__ is Stream and before is not value:
            self.table.changes.end(before)
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        value = self.take(key)
        if value.__class__ is Stream:
            self.table.changes.end(value)

    def pop(self, key: bytes, default: Any = None) -> Any:
        """Delete a key. Return its value, the number of its stream if that cannot be read, or `default`."""
        value: Value | int | None = resident(self, key)
        if value is None:
            value = self._load_to_drop(key)
            if value is None:
                return default
            if value.__class__ is int:
                self._end_lost(key)
                self.table.change(key)
                self.count -= 1
                return value
        del self[key]
        return value

    def _load_to_drop(self, key: bytes) -> Value | int | None:
        """As `load`, for a key to be deleted or replaced. If its stream cannot be read, return the stream's number."""
        number = self.lost.get(key)
        if number is None:
            try:
                return self.load(key)
            except CorruptBlock:
                # Only a replay comes here: in live execution, `lose` was called while the command was decided.
                if not self.lose(key):
                    raise
                number = self.lost[key]
        return number

    def _end_lost(self, key: bytes) -> None:
        """End the unreadable stream of a key: the next checkpoint deletes its rows."""
        self.table.changes.end_stored(self.lost.pop(key))

    def drop(self, keys: Iterable[bytes]) -> None:
        """`pop` of many keys, in one loop since a DEL may name a million. Keys that do not exist are skipped."""
        table, changes, order = self.table, self.table.changes, self._order
        changed, keeper = table.changed, table.keeper
        forget, accessed = super().__delitem__, self.accessed
        for key in keys:
            value = resident(self, key)
            if value is None:
                self.pop(key)
                continue
            if keeper is None:
                changed[key] = None  # `Table.change` inlined
            else:
                table.change(key)
            forget(key)
            accessed.pop(key, None)
            if self.lost:
                self.lost.pop(key, None)
            if order is not None:
                order.remove(key)
            self.count -= 1
            if value.__class__ is Stream:
                changes.end(value)

    def take(self, key: bytes) -> Value:
        """Remove a key and return its value, which moves to another key: a stream does not end. KeyError if missing."""
        value = self[key]
        self.table.change(key)
        self._forget(key)
        self.count -= 1
        return value

    def change(self, key: bytes) -> None:
        """Note that the expiry of an existing key is about to change; loads the key."""
        if not _is_resident(self, key):
            self.load(key)
        self.table.change(key)

    def end(self) -> None:
        """Delete all keys. The object must not be used afterwards."""
        changes = self.table.changes
        changes.flushed += _residents(self)
        for value in super().values():
            if value.__class__ is Stream:
                changes.end(value)
        if changes.generation > 1:  # a checkpoint may hold rows of this table
            changes.tables_ended.append((self.table.number, self.table.changed.keys()))

    # --- what is in memory and what is not

    def evict(self, key: bytes) -> bool:
        """Evict a key and its expiry from memory. False if it is not resident or the checkpoint does not have it."""
        value = resident(self, key)
        changes = self.table.changes
        if value is None or changes.cold is None or not self.table.stored(key):
            return False
        if value.__class__ is Stream and changes.changed(value):
            return False
        self._forget(key)
        self.expires.evict(key)
        return True

    def _forget(self, key: bytes) -> None:
        """Remove a resident key from memory."""
        super().__delitem__(key)
        self.accessed.pop(key, None)
        if self.lost:
            self.lost.pop(key, None)
        if self._order is not None:
            self._order.remove(key)

    def load(self, key: bytes) -> Value | None:
        """Load a key that is not resident. None if it does not exist. May raise CorruptBlock."""
        if self.table.changes.cold is None:
            return None
        row = self._cold_row(key)
        if row is None:
            return None
        expire_at = row[0]
        value = self._value(key, row)
        # Set the value last. If an interrupt comes before, the key is still not resident, and the next access loads it
        # again.
        if expire_at != NO_EXPIRY:
            self.expires.load(key, expire_at)
        super().__setitem__(key, value)
        if self._order is not None:
            self._order.add(key)
        return value

    def lose(self, key: bytes) -> bool:
        """Note in `lost` that a key's stream, which cannot be read, is about to be deleted or replaced.

        False if the key holds no stream. Loads its expiry, as `load` does. May raise CorruptBlock.
        """
        row = self._cold_row(key)
        if row is None or row[1] != KIND_STREAM:
            return False
        if row[0] != NO_EXPIRY:
            self.expires.load(key, row[0])
        self.lost[key] = row[2]
        return True

    def look(self, key: bytes) -> tuple[Value, int]:
        """(value, expire_at or NO_EXPIRY) of an existing key; does not keep it in memory. May raise CorruptBlock."""
        value = resident(self, key)
        if value is not None:
            return value, self.expires.get(key, NO_EXPIRY)
        row = self._cold_row(key)
        assert row is not None
        return self._value(key, row), row[0]

    def _cold_row(self, key: bytes) -> KeyRow | None:
        """The checkpoint's row of a key that is not resident. None if there is no such key. May raise CorruptBlock."""
        cold = self.table.changes.cold
        if cold is None or self.count == _residents(self) or not self.table.stored(key):
            return None
        row = cold.get(key_row(self.table.number, key))
        return None if row is None else keyrow.unpack_of(row, key)

    def _is_cold(self, key: bytes) -> bool:
        """Whether a key that the checkpoint has still exists and is not resident."""
        return not _is_resident(self, key) and self.table.stored(key)

    def _value(self, key: bytes, row: KeyRow) -> Value:
        _, kind, held = row
        if kind != KIND_STREAM:
            string: bytes = held
            return string
        try:
            return load_stream(self._cold(), held)
        except CorruptBlock as damage:
            raise CorruptBlock(
                f"{damage}: the stream at key {echo(key)!r} cannot be read. DEL deletes it"
            ) from damage

    def _cold(self) -> ColdStore:
        cold = self.table.changes.cold
        assert cold is not None, "there are keys that are not in memory, but there is no checkpoint"
        return cold

    def _cold_since(self, start: bytes) -> Iterator[tuple[bytes, bytes, KeyRow]]:
        """(hash, key, row) of the checkpoint's keys from `start` on, in the order of SCAN; some rows may be stale."""
        prefix = key_prefix(self.table.number)
        for name, packed in self._cold().rows(prefix, prefix + start):
            key, row = keyrow.unpack(packed)
            yield name[len(prefix) :], key, row

    def _cold_places(self, first: int) -> Iterator[tuple[int, bytes | None]]:
        """(place, key) of the keys that are not resident, from place `first` on. A row whose key is resident or changed
        yields (place, None), so the merge in `scan` gets the next place at once: a scan whose page is full can stop at
        the next resident key without a walk to the next cold one.
        """
        for spot, key, _ in self._cold_since(_start(first)):
            yield _place(spot), key if self._is_cold(key) else None
