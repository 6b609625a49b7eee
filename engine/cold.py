"""Cold: how the engine reads what is stored and not in memory. `snapshot/` implements it over a checkpoint.

A store of rows, key -> payload, both bytes, in the order of their keys (engine.rowkeys). What it shows is the state as
of one LSN; it changes only when a checkpoint commits, under the store's lock. Every method may raise CorruptBlock,
which names the row in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ColdStore(Protocol):
    """The rows of one checkpoint. One object for the life of a store."""

    def get(self, key: bytes) -> bytes | None:
        """The payload of a row, or None."""

    def before(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The greatest row that begins with `prefix` and whose key is at most `key`, or None."""

    def after(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        """The least row that begins with `prefix` and whose key is at least `key`, or None."""

    def rows(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The rows that begin with `prefix`, ascending, from `start` on."""
