"""A ColdStore over a sorted list in memory, to be written to by tests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any


class RowsInMemory:
    """The rows of a checkpoint, without a file.

    reads     how often it was read
    closed    rows that are there must not be read now: effects are applied live
    """

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._payloads: dict[bytes, bytes] = {}
        self.reads = 0
        self.closed = False

    def put(self, key: bytes, payload: bytes | None) -> None:
        """Write a row; None deletes it, if it is there."""
        if payload is None:
            if self._payloads.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._payloads:
            self._keys.insert(bisect_left(self._keys, key), key)
        self._payloads[key] = bytes(payload)

    def delete_prefix(self, prefix: bytes) -> None:
        """Delete all rows that begin with `prefix`."""
        low = high = bisect_left(self._keys, prefix)
        while high < len(self._keys) and self._keys[high].startswith(prefix):
            del self._payloads[self._keys[high]]
            high += 1
        del self._keys[low:high]

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows from key `start` up to `stop`, which stays."""
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, stop)
        for key in self._keys[low:high]:
            del self._payloads[key]
        del self._keys[low:high]

    def write(self, operations: Iterable[tuple[Any, ...]]) -> None:
        """A step of `Frozen.rows`: ("put", key, payload), ("delete", key), ("delete_prefix", prefix), ("delete_range",
        start, stop), ("rest",)."""
        for operation in operations:
            match operation:
                case ("put", key, payload):
                    self.put(key, payload)
                case ("delete", key):
                    self.put(key, None)
                case ("delete_prefix", prefix):
                    self.delete_prefix(prefix)
                case ("delete_range", start, stop):
                    self.delete_range(start, stop)
                case ("rest",):
                    pass
                case _:
                    raise AssertionError(operation)

    def copy(self) -> RowsInMemory:
        """The same rows, apart from these."""
        other = RowsInMemory()
        other._keys, other._payloads = self._keys.copy(), self._payloads.copy()
        return other

    def all(self) -> dict[bytes, bytes]:
        """Every row, ascending."""
        return {key: self._payloads[key] for key in self._keys}

    # --- what the engine reads

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        payload = self._payloads.get(key)
        assert payload is None or not self.closed, key
        return payload

    def before(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        self.reads += 1
        at = bisect_right(self._keys, key) - 1
        # The greatest key at most `key` may lie behind those that begin with the prefix.
        while at >= 0 and self._keys[at] > prefix and not self._keys[at].startswith(prefix):
            at -= 1
        return self._row(at, prefix)

    def after(self, key: bytes, prefix: bytes) -> tuple[bytes, bytes] | None:
        self.reads += 1
        return self._row(bisect_left(self._keys, max(key, prefix)), prefix)

    def rows(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        found = self.after(start, prefix)
        while found is not None:
            yield found
            found = self.after(found[0] + b"\0", prefix)

    def _row(self, at: int, prefix: bytes) -> tuple[bytes, bytes] | None:
        if not 0 <= at < len(self._keys) or not self._keys[at].startswith(prefix):
            return None
        assert not self.closed, self._keys[at]
        return self._keys[at], self._payloads[self._keys[at]]
