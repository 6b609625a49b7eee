"""LZF, in which Redis stores strings of more than 20 bytes: decompression only.

    000nnnnn                       the next n + 1 bytes as they are
    nnnooooo oooooooo              n + 2 bytes again, from o + 1 bytes back (n from 1 to 6)
    111ooooo nnnnnnnn oooooooo     n + 9 bytes again

The package python-neo-lzf does it in C. Without it, the loop below takes about 20 us for a node of 4 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

# Three bytes of LZF give at most 264 bytes, so a string that claims to grow by more is a lie, and is not unpacked.
GROWTH_MAX: Final = 88


def _found_in_c() -> Callable[[bytes, int], bytes | None] | None:
    """The function of the package, if it is installed and does what is expected: several packages have that name."""
    try:
        decompress: Callable[[bytes, int], bytes | None] = import_module("lzf").decompress
        if decompress(_PACKED, len(_UNPACKED)) == _UNPACKED:
            return decompress
    except Exception:
        pass
    return None


_PACKED: Final = b"\x00z\xe0\x01\x00"
_UNPACKED: Final = b"z" * 11
_in_c = _found_in_c()


def decompress(data: bytes, length: int) -> bytes:
    """The `length` bytes that `data` stands for. Raises ValueError if it stands for others, or for more."""
    if length > len(data) * GROWTH_MAX:
        raise ValueError(f"{len(data)} compressed bytes cannot stand for {length}")
    if _in_c is not None:
        found = _in_c(data, length)
        if found is None or len(found) != length:
            raise ValueError(f"the compressed bytes do not stand for {length} bytes")
        return found
    return in_python(data, length)


def in_python(data: bytes, length: int) -> bytes:
    """`decompress` without the C package."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                stop = at + control + 1
                if stop > end:
                    raise IndexError
                out += data[at:stop]
                at = stop
                continue
            count = control >> 5
            if count == 7:
                count += data[at]
                at += 1
            count += 2
            back = ((control & 31) << 8 | data[at]) + 1
            at += 1
            start = len(out) - back
            if start < 0:
                raise ValueError("the compressed bytes refer to bytes before their beginning")
            if back >= count:
                out += out[start : start + count]
            else:
                out += (out[start:] * (count // back + 1))[:count]
            if len(out) > length:
                break
    except IndexError:
        raise ValueError("the compressed bytes end in the middle") from None
    if len(out) != length:
        raise ValueError(f"the compressed bytes do not stand for {length} bytes")
    return bytes(out)
