"""Units: how much of a queue's data goes into one unit, and so into one frame of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

UNIT_BYTES: Final = 4 << 20  # of values; a larger value gets its own unit


def in_units(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split the items, in order, into parts of at most UNIT_BYTES. A larger item is a part of its own; no part is
    empty.
    """
    part: list[T] = []
    total = 0
    for item in items:
        nbytes = size(item)
        if part and total + nbytes > UNIT_BYTES:
            yield part
            part, total = [], 0
        part.append(item)
        total += nbytes
    if part:
        yield part
