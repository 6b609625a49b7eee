"""Rows with the same fields, as what they differ in: their values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

Row = tuple[bytes, ...]


def values_of(rows: Sequence[Row], fields: Sequence[bytes]) -> Sequence[bytes] | None:
    """The values of all rows, one after the other, if each has exactly these fields in this order; else None."""
    if len(fields) == 1:  # most rows of queues: turned by zip, in half of the time
        try:
            names, values = zip(*rows, strict=True)
        except ValueError:  # one of them has more
            return None
        return values if names.count(fields[0]) == len(names) else None
    flat = list(chain.from_iterable(rows))
    if set(map(len, rows)) != {2 * len(fields)} or flat[::2] != list(fields) * len(rows):
        return None
    return flat[1::2]
