"""Cold: how the engine reads data that is stored and not in memory. `snapshot/` implements it over a checkpoint.

A cold store has rows, key -> payload, both bytes, sorted by key (engine.rowkeys). It shows the state as of one LSN and
changes only when a checkpoint commits, under the store's lock. Every method may raise CorruptBlock, whose message names
the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ColdStore(Protocol):
    """The rows of the committed checkpoint. One object serves a store until it is closed."""

    def get(self, key: bytes) -> bytes | None:
        """The payload of the row with this key, or None."""

    def before(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """(key, payload) of the last row whose key begins with `prefix` and is at most `key`, or None."""

    def after(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """(key, payload) of the first row whose key begins with `prefix` and is at least `key`, or None."""

    def rows(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """(key, payload) of the rows whose keys begin with `prefix`, ascending, from the key `start` on."""
