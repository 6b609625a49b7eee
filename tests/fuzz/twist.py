"""Changes to bytes and to decoded values, by chance."""

from __future__ import annotations

import random
from typing import Any

_BYTES = (0, 1, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xC3, 0xF0, 0xF4, 0xFF)
_NUMBERS = (
    0,
    1,
    -1,
    2,
    63,
    64,
    127,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    1.5,
    b"",
    b"x",
    b"\xff" * 9,
    "text",
    (),
    (0,),
    (b"f", b"v"),
    ((),),
)


def changed(data: bytes, r: random.Random, first: int, last: int) -> bytes:
    """One to five changes of bytes between the offsets `first` and `last`; the length may change."""
    out = bytearray(data)
    behind = len(data) - last
    for _ in range(r.choice((1, 1, 2, 5))):
        if len(out) - behind <= first:
            break
        at = r.randrange(first, len(out) - behind)
        choice = r.random()
        if choice < 0.5:
            out[at] ^= 1 << r.randrange(8)
        elif choice < 0.7:
            out[at] = r.choice(_BYTES)
        elif choice < 0.85:
            del out[at : min(at + r.randrange(1, 9), len(out) - behind)]
        else:
            out[at:at] = out[at : min(at + r.randrange(1, 40), len(out) - behind)]
    return bytes(out)


def twisted(value: Any, r: random.Random) -> Any:
    """The value, or one of the values in it, replaced, left out or repeated."""
    if isinstance(value, tuple | list) and value and r.random() < 0.8:
        inner = list(value)
        at = r.randrange(len(inner))
        choice = r.random()
        if choice < 0.8:
            inner[at] = twisted(inner[at], r)
        elif choice < 0.88:
            del inner[at]
        elif choice < 0.94:
            inner.insert(at, inner[r.randrange(len(inner))])
        else:
            other = r.randrange(len(inner))
            inner[at], inner[other] = inner[other], inner[at]
        return type(value)(inner)
    if isinstance(value, dict) and value:
        at = r.choice(list(value))
        return {**value, at: twisted(value[at], r)}
    if isinstance(value, int) and r.random() < 0.7:
        near = value + r.choice((-2, -1, 1, 2, 64, -64))
        number = near if r.random() < 0.4 else r.choice(_NUMBERS)
        return number if -(1 << 63) <= number < 1 << 64 else 0
    if isinstance(value, bytes) and value and r.random() < 0.7:
        return changed(value, r, 0, len(value))
    return r.choice((*_NUMBERS, *_OTHERS))
