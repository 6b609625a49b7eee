"""Keyspace: the keys of one database, and the order SCAN walks them in.

A dict key -> value. SCAN needs an order that does not depend on what comes and goes between two of its
calls: keys are ordered by their *place*, a number made of the key's name alone. A cursor is the place to go on
from, so the server keeps nothing, a cursor outlives a restart, and a key that exists during a whole scan is
passed exactly once, whatever is inserted or deleted meanwhile.

The sorted places are built at the first SCAN and kept up from then on; a store that never scans pays nothing.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedKeyList  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tidelog.engine.stream import Stream

    Value = Stream | bytes

PLACES = 1 << 52  # cursors stay exact in a double: some clients have no other number


def place(key: bytes) -> int:
    """Where SCAN passes this key: 1 up to and including PLACES; the same in every process and version.

    Spread evenly, and by a function whose collisions nobody finds: keys of one place come in one reply.
    """
    return (int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 12) + 1


class Keyspace(dict[bytes, "Value"]):
    """Key -> value, with `scan`. Changed through item assignment, `del`, `pop` and `clear` alone."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        super().__init__()
        self._order: Any = None  # SortedKeyList of the keys by place, once somebody has scanned

    def __setitem__(self, key: bytes, value: Value) -> None:
        if self._order is not None and key not in self:
            self._order.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        super().__delitem__(key)
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
        self._order = None

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """About `count` keys from a cursor on (0 = the start), and the next cursor (0 = no more).

        More than `count` only where keys share a place.
        """
        if self._order is None:
            self._order = SortedKeyList(self, key=place)
        found: list[bytes] = []
        passed = 0
        for key in self._order.irange_key(min_key=cursor):
            at = place(key)
            if len(found) >= count and at != passed:
                return at, found
            passed = at
            found.append(key)
        return 0, found
