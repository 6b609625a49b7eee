"""Merge two ascending sequences by key, with one item of each in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

K = TypeVar("K", int, bytes, tuple[int, bytes])
V = TypeVar("V")


def merged(
    left: Iterable[tuple[K, V]], right: Iterable[tuple[K, V]]
) -> Iterator[tuple[K, V | None, V | None]]:
    """(key, value on the left, value on the right) of every key, ascending; None where a side has no such key."""
    lefts, rights = iter(left), iter(right)
    a, b = next(lefts, None), next(rights, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a[0] < b[0]):
            assert a is not None
            yield a[0], a[1], None
            a = next(lefts, None)
        elif a is None or b[0] < a[0]:
            yield b[0], None, b[1]
            b = next(rights, None)
        else:
            yield a[0], a[1], b[1]
            a, b = next(lefts, None), next(rights, None)
