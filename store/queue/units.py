"""Units: how much of a queue's data one frame of the log may well hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

UNIT_BYTES: Final = 4 << 20  # of values; a larger one has a unit to itself


def in_units(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in order, in parts of at most UNIT_BYTES as far as single ones allow; none is empty."""
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
