"""One row of a checkpoint, made unreadable."""

from __future__ import annotations

from pathlib import Path

import lmdb


def damage(store: Path, prefix: bytes, at: int = 0) -> None:
    """Flip a bit of the first row of a kind, or of one behind it."""
    with lmdb.Environment(str(store / "checkpoint"), map_size=1 << 30) as environment:
        with environment.begin(write=True) as txn:
            cursor = txn.cursor()
            assert cursor.set_range(prefix)
            assert all(cursor.next() for _ in range(at)) and cursor.key().startswith(prefix)
            key, value = cursor.key(), bytearray(cursor.value())
            value[len(value) // 2] ^= 0x10
            txn.put(key, bytes(value))
