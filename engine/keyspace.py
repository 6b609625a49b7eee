"""Keyspace: the keys of one database, and the order SCAN walks them in.

A dict key -> value of what is in memory; it wins. A key that is not is read from the checkpoint (engine.cold), if there
is one and the key has not changed since: its value and its expiry are in memory then until `evict`. So are they before
anything about a key changes, and a key that changed and is missing in memory is gone.

SCAN needs an order that does not depend on what comes and goes between two of its
calls: keys are ordered by their *place*, a number made of the key's name alone. A cursor is the place to go on
from, so the server keeps nothing, a cursor outlives a restart, and a key that exists during a whole scan is
passed exactly once, whatever is inserted or deleted meanwhile.

The sorted places are built at the first SCAN and kept up from then on; a store that never scans pays nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from tidelog.engine import keyrow
from tidelog.engine.changes import Table
from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.expiries import NEVER, Expiries
from tidelog.engine.keyrow import NO_EXPIRY, KeyRow
from tidelog.engine.rowkeys import KIND_STREAM, PLACE_BYTES, key_prefix, key_row, place_hash
from tidelog.engine.stream import Stream

Value = Stream | bytes

CHUNK = 256  # keys of one chunk of the order; twice that and it is split
PLACES = 1 << 52  # cursors stay exact in a double: some clients have no other number
_SURPLUS_BITS = 12
resident = dict.get  # of a keyspace and a key: what it holds in memory, or None
_residents = dict.__len__
_is_resident = dict.__contains__
assert PLACES == 1 << 8 * PLACE_BYTES - _SURPLUS_BITS


def place(key: bytes) -> int:
    """Where SCAN passes this key: 1 up to and including PLACES; the same in every process and version."""
    return _place(_spot(key))


def _spot(key: bytes) -> bytes:
    """Hash and key in one: sorting these sorts by place, and costs no object per key that the collector walks.

    The hash is even, and one whose collisions nobody finds: the keys of one place come in one reply.
    """
    return place_hash(key) + key


def _place(spot: bytes) -> int:
    return (int.from_bytes(spot[:PLACE_BYTES], "big") >> _SURPLUS_BITS) + 1


def _start(first: int) -> bytes:
    """What sorts before all spots of this place and later ones, and after all others."""
    return (max(first - 1, 0) << _SURPLUS_BITS).to_bytes(PLACE_BYTES, "big")


class Order:
    """Names in the order of their places: sorted chunks of spots, each with its last in `_lasts`."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self, names: Iterable[bytes]) -> None:
        spots = sorted(map(_spot, names))
        self._chunks = [spots[at : at + CHUNK] for at in range(0, len(spots), CHUNK)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def add(self, name: bytes) -> None:
        """Take in a name that is not there."""
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
        """Take out a name that is there."""
        spot = _spot(name)
        index = bisect_left(self._lasts, spot)
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, spot)]
        if chunk:
            self._lasts[index] = chunk[-1]
        else:
            del self._chunks[index], self._lasts[index]

    def since(self, first: int) -> Iterator[tuple[int, bytes]]:
        """(place, name) of all whose place is at least `first`, ascending."""
        if first > PLACES:
            return
        start = _start(first)
        for index in range(bisect_left(self._lasts, start), len(self._chunks)):
            chunk = self._chunks[index]
            for spot in chunk[bisect_left(chunk, start) :]:
                yield _place(spot), spot[PLACE_BYTES:]


class Keyspace(dict[bytes, Value]):
    """Key -> value, with `scan`. Changed through item assignment, `del`, `pop` and `take` alone.

    `keys[key]` costs what it costs in a dict; every other way of looking is a call more. All may raise CorruptBlock.

    count       keys there are, in memory or not
    table       which of them changed since the last freeze, and their number in the checkpoint
    expires     their times
    accessed    key -> unix ms of the last command that named it (OBJECT IDLETIME)
    lost        key -> number of a stream whose row cannot be read, noted for the command that deletes or replaces it

    Decide notes down the last two. They are no state: neither logged nor part of a digest, and empty after each open.
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
        self._order: Order | None = None  # of what is in memory, once somebody has scanned

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
        """Whether every key is in memory, so that one that is not found there does not exist."""
        return self.count == _residents(self)

    def __iter__(self) -> Iterator[bytes]:
        """All keys, in no order. Keys may be loaded meanwhile, but not change."""
        if self.count == _residents(self):
            return super().__iter__()
        return (key for key, _ in self.listed())

    def keys(self) -> Iterator[bytes]:  # type: ignore[override]
        return iter(self)

    def values(self) -> Iterator[Value]:  # type: ignore[override]
        """All values; those that are not in memory come without being kept there."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[bytes, Value]]:  # type: ignore[override]
        """As `values`, with the keys."""
        return ((key, self.look(key)[0]) for key in self)

    def walk(self) -> Iterator[tuple[bytes, Value, int]]:
        """(key, value, expire_at or NO_EXPIRY) of all keys, ascending; nothing is kept in memory that was not there."""
        return ((key, *self.look(key)) for key in sorted(self))

    def listed(self) -> Iterator[tuple[bytes, int]]:
        """(key, when it expires or NEVER) of all keys, in no order."""
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
        """All keys, from one on that the number picks; each at least once."""
        here = _residents(self)
        pick %= self.count or 1
        if pick < here or self.count == here:
            return chain(islice(self, pick, None), islice(self, pick))
        start = place_hash(pick.to_bytes(8, "big"))
        later = (key for _, key, _ in self._cold_since(start) if self._is_cold(key))
        return chain(later, self)

    def is_string(self, key: bytes) -> bool:
        """Whether a key that is there holds a string. Loads nothing."""
        value = resident(self, key)
        if value is not None:
            return isinstance(value, bytes)
        row = self._cold_row(key)
        return row is not None and row[1] != KIND_STREAM

    def expire_at(self, key: bytes) -> int:
        """When a key expires, or NEVER. Loads nothing."""
        at = self.expires.get(key)
        if at is None and self.expires.count and not _is_resident(self, key):
            row = self._cold_row(key)
            if row is not None and row[0] != NO_EXPIRY:
                return row[0]
        return NEVER if at is None else at

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """About `count` keys from a cursor on (0 = the start), and the next cursor (0 = no more).

        More than `count` only where keys share a place.
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
            self.table.changed[key] = None  # as `change`, a call less
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
        """The value of a key that is dropped, or `default`: the number of a stream whose row cannot be read."""
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
        """As `load`, for a key that is deleted or replaced: the number of a stream whose row cannot be read."""
        number = self.lost.get(key)
        if number is None:
            try:
                return self.load(key)
            except CorruptBlock:  # in a replay, which decides nothing
                if not self.lose(key):
                    raise
                number = self.lost[key]
        return number

    def _end_lost(self, key: bytes) -> None:
        """The stream of a key goes, whose row cannot be read."""
        self.table.changes.end_stored(self.lost.pop(key))

    def drop(self, keys: Iterable[bytes]) -> None:
        """`pop` of many keys: a DEL may name a million. One that is not there is passed over."""
        table, changes, order = self.table, self.table.changes, self._order
        changed, keeper = table.changed, table.keeper
        forget, accessed = super().__delitem__, self.accessed
        for key in keys:
            value = resident(self, key)
            if value is None:
                self.pop(key)
                continue
            if keeper is None:
                changed[key] = None  # as `change`, a call less
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
        """The value of a key that is dropped because it moves elsewhere: a stream goes on."""
        value = self[key]
        self.table.change(key)
        self._forget(key)
        self.count -= 1
        return value

    def change(self, key: bytes) -> None:
        """The expiry of a key that is there is about to change."""
        if not _is_resident(self, key):
            self.load(key)
        self.table.change(key)

    def end(self) -> None:
        """All keys go, and nobody uses this object again."""
        changes = self.table.changes
        for value in super().values():
            if value.__class__ is Stream:
                changes.end(value)
        if changes.generation > 1:  # something was frozen before
            changes.tables_ended.append((self.table.number, self.table.changed.keys()))

    # --- what is in memory and what is not

    def evict(self, key: bytes) -> bool:
        """Drop from memory what a key holds; the checkpoint has it. False: it is not in memory, or it changed."""
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
        """A key that is in memory is there no more."""
        super().__delitem__(key)
        self.accessed.pop(key, None)
        if self.lost:
            self.lost.pop(key, None)
        if self._order is not None:
            self._order.remove(key)

    def load(self, key: bytes) -> Value | None:
        """Bring a key into memory that is not there. None: there is no such key."""
        if self.table.changes.cold is None:
            return None
        row = self._cold_row(key)
        if row is None:
            return None
        expire_at = row[0]
        value = self._value(key, row)
        # The value last: an interrupt in between leaves a key that is not in memory yet.
        if expire_at != NO_EXPIRY:
            self.expires.load(key, expire_at)
        super().__setitem__(key, value)
        if self._order is not None:
            self._order.add(key)
        return value

    def lose(self, key: bytes) -> bool:
        """Note that the stream of a key, whose row cannot be read, is to be deleted or replaced.

        False: the key holds no stream. May raise CorruptBlock. Its expiry comes into memory, as `load` has it.
        """
        row = self._cold_row(key)
        if row is None or row[1] != KIND_STREAM:
            return False
        if row[0] != NO_EXPIRY:
            self.expires.load(key, row[0])
        self.lost[key] = row[2]
        return True

    def look(self, key: bytes) -> tuple[Value, int]:
        """The value of a key that is there, and when it expires or NO_EXPIRY, without bringing it into memory."""
        value = resident(self, key)
        if value is not None:
            return value, self.expires.get(key, NO_EXPIRY)
        row = self._cold_row(key)
        assert row is not None
        return self._value(key, row), row[0]

    def _cold_row(self, key: bytes) -> KeyRow | None:
        """What the checkpoint says of a key that is not in memory. None: there is no such key."""
        cold = self.table.changes.cold
        if cold is None or self.count == _residents(self) or not self.table.stored(key):
            return None
        row = cold.get(key_row(self.table.number, key))
        return None if row is None else keyrow.unpack_of(row, key)

    def _is_cold(self, key: bytes) -> bool:
        """Whether a key that the checkpoint has is there and not in memory."""
        return not _is_resident(self, key) and self.table.stored(key)

    def _value(self, key: bytes, row: KeyRow) -> Value:
        _, kind, held = row
        if kind != KIND_STREAM:
            string: bytes = held
            return string
        from tidelog.engine.freeze import load_stream  # which imports this module

        try:
            return load_stream(self._cold(), held)
        except CorruptBlock as damage:
            raise CorruptBlock(
                f"{damage}: nothing of the stream at key {echo(key)!r} can be read. DEL gives it up"
            ) from damage

    def _cold(self) -> ColdStore:
        cold = self.table.changes.cold
        assert cold is not None, "keys that are not in memory, and no checkpoint"
        return cold

    def _cold_since(self, start: bytes) -> Iterator[tuple[bytes, bytes, KeyRow]]:
        """(hash, key, row) of all that the checkpoint has, in the order of SCAN: also what is no longer true."""
        prefix = key_prefix(self.table.number)
        for name, packed in self._cold().rows(prefix, prefix + start):
            key, row = keyrow.unpack(packed)
            yield name[len(prefix) :], key, row

    def _cold_places(self, first: int) -> Iterator[tuple[int, bytes | None]]:
        """(place, key) of the keys that are not in memory. A key of None is passed over: a page of a scan that is full
        need not walk on to the next one.
        """
        for spot, key, _ in self._cold_since(_start(first)):
            yield _place(spot), key if self._is_cold(key) else None
