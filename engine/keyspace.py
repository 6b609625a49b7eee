"""Keyspace: the keys of one database, and the order SCAN walks them in.

A dict key -> value. SCAN needs an order that does not depend on what comes and goes between two of its
calls: keys are ordered by their *place*, a number made of the key's name alone. A cursor is the place to go on
from, so the server keeps nothing, a cursor outlives a restart, and a key that exists during a whole scan is
passed exactly once, whatever is inserted or deleted meanwhile.

The sorted places are built at the first SCAN and kept up from then on; a store that never scans pays nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.engine.stream import Stream

    Value = Stream | bytes

CHUNK = 256  # keys of one chunk of the order; twice that and it is split
PLACES = 1 << 52  # cursors stay exact in a double: some clients have no other number
_HASH_BYTES = 8
_SURPLUS_BITS = 12
assert PLACES == 1 << 8 * _HASH_BYTES - _SURPLUS_BITS


def place(key: bytes) -> int:
    """Where SCAN passes this key: 1 up to and including PLACES; the same in every process and version."""
    return _place(_spot(key))


def _spot(key: bytes) -> bytes:
    """Hash and key in one: sorting these sorts by place, and costs no object per key that the collector walks.

    The hash is even, and one whose collisions nobody finds: the keys of one place come in one reply.
    """
    return blake2b(key, digest_size=_HASH_BYTES).digest() + key


def _place(spot: bytes) -> int:
    return (int.from_bytes(spot[:_HASH_BYTES], "big") >> _SURPLUS_BITS) + 1


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
        start = (max(first - 1, 0) << _SURPLUS_BITS).to_bytes(_HASH_BYTES, "big")
        for index in range(bisect_left(self._lasts, start), len(self._chunks)):
            chunk = self._chunks[index]
            for spot in chunk[bisect_left(chunk, start) :]:
                yield _place(spot), spot[_HASH_BYTES:]


class Keyspace(dict[bytes, "Value"]):
    """Key -> value, with `scan`. Changed through item assignment, `del`, `pop` and `clear` alone.

    accessed    key -> unix ms of the last command that named it (OBJECT IDLETIME). The one thing that decide
                notes down: it is no state, neither logged nor part of a digest, and begins anew with each open
    """

    __slots__ = ("_order", "accessed")

    def __init__(self) -> None:
        super().__init__()
        self.accessed: dict[bytes, int] = {}
        self._order: Order | None = None  # once somebody has scanned

    def __setitem__(self, key: bytes, value: Value) -> None:
        if self._order is not None and key not in self:
            self._order.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        super().__delitem__(key)
        self.accessed.pop(key, None)
        if self._order is not None:
            self._order.remove(key)

    def pop(self, key: bytes, default: Any = None) -> Any:
        """The value of a key that is dropped, or `default`."""
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Drop all keys, and the order with them."""
        super().clear()
        self.accessed.clear()
        self._order = None

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """About `count` keys from a cursor on (0 = the start), and the next cursor (0 = no more).

        More than `count` only where keys share a place.
        """
        if self._order is None:
            self._order = Order(self)
        found: list[bytes] = []
        passed = 0
        for at, key in self._order.since(cursor):
            if len(found) >= count and at != passed:
                return at, found
            passed = at
            found.append(key)
        return 0, found
