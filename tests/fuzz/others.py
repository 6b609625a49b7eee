"""Parts of an image that a Redis writes and tidelog does not.

Values of other types, facts between keys, and compressed strings: written from the layouts, without the code that reads
them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

# type -> the script of its value: L a length, S a string, D a number as text, 8 eight bytes; brackets repeat L times
SCRIPTS = {
    **{0: "S", 1: "L(S)", 2: "L(S)", 3: "L(SD)", 4: "L(SS)", 5: "L(S8)", 14: "L(S)"},
    **{9: "S", 10: "S", 11: "S", 12: "S", 13: "S", 16: "S", 17: "S", 20: "S", 23: "S"},
    **{18: "L(LS)", 22: "L(LSS)", 24: "8L(LSS)", 25: "8S"},
}


def length(number: int) -> bytes:
    if number < 64:
        return bytes((number,))
    if number < 1 << 14:
        return (number | 1 << 14).to_bytes(2, "big")
    return b"\x80" + number.to_bytes(4, "big")


def compressed(chunk: bytes, times: int) -> bytes:
    """A string in LZF."""
    packed = lzf(chunk, times)
    return b"\xc3" + length(len(packed)) + length(len(chunk) * times) + packed


def lzf(chunk: bytes, times: int) -> bytes:
    """A chunk as it is, then references back to it."""
    out = bytearray()
    for at in range(0, len(chunk), 32):
        piece = chunk[at : at + 32]
        out += bytes((len(piece) - 1,)) + piece
    left, back = len(chunk) * (times - 1), len(chunk) - 1
    while left >= 3:
        count = min(left, 264)
        if count < 9:
            out += bytes(((count - 2) << 5 | back >> 8, back & 255))
        else:
            out += bytes((7 << 5 | back >> 8, count - 9, back & 255))
        left -= count
    for byte in (chunk * times)[len(chunk) * times - left :]:
        out += bytes((0, byte))
    return bytes(out)


def string(r: random.Random) -> bytes:
    way = r.randrange(6)
    if way == 0:
        return b"\xc0" + r.randbytes(1)
    if way == 1:
        return b"\xc1" + r.randbytes(2)
    if way == 2:
        return b"\xc2" + r.randbytes(4)
    data = r.randbytes(r.randrange(1, 70))
    return compressed(data, r.randrange(1, 9)) if way < 5 else length(len(data)) + data


def number(r: random.Random) -> bytes:
    return r.choice((b"\xfd", b"\xfe", b"\xff", b"\x031.5"))


def module(r: random.Random) -> bytes:
    parts: tuple[Callable[[], bytes], ...] = (
        lambda: b"\x01" + length(r.randrange(900)),
        lambda: b"\x02" + length(r.randrange(90)),
        lambda: b"\x03" + r.randbytes(4),
        lambda: b"\x04" + r.randbytes(8),
        lambda: b"\x05" + string(r),
    )
    return b"".join(r.choice(parts)() for _ in range(r.randrange(6))) + b"\x00"


def array(r: random.Random) -> bytes:
    elements = [
        length(r.randrange(5))
        + (b"\x00" + string(r) if r.random() < 0.5 else b"\x01" + r.randbytes(8))
        for _ in range(r.randrange(5))
    ]
    index = b"\x01" + length(7) if r.random() < 0.5 else b"\x00"
    return length(len(elements)) + index + b"".join(elements)


_PARTS: dict[str, Callable[[random.Random], bytes]] = {
    "S": string,
    "D": number,
    "8": lambda r: r.randbytes(8),
}


def value(kind: int, r: random.Random) -> bytes:
    head, bracket, inner = SCRIPTS[kind].partition("(")
    out, count = b"", r.randrange(5)
    for letter in head + inner[:-1] * (count if bracket else 0):
        if letter == "L":
            out += length(count)
        else:
            out += _PARTS[letter](r)
    return out


def key(r: random.Random) -> bytes:
    """A key with a value of another type, or a compressed string."""
    name = length(9) + b"other-%03d" % r.randrange(1000)
    kind = r.choice((*SCRIPTS, 7, 28))
    if kind == 7:
        body = length(1 << 20) + module(r)
    else:
        body = array(r) if kind == 28 else value(kind, r)
    before = r.choice((b"", b"", b"\xfc" + r.randbytes(8), b"\xfd" + r.randbytes(4)))
    before += r.choice((b"", b"", b"\xf8\x05", b"\xf9\x09"))
    return before + bytes((kind,)) + name + body


def between(r: random.Random) -> bytes:
    """A fact that stands between keys."""
    return r.choice(
        (
            lambda: b"\xfa" + string(r) + string(r),
            lambda: b"\xfb" + length(r.randrange(99)) + length(r.randrange(99)),
            lambda: b"\xf4" + length(1) + length(2) + length(3),
            lambda: b"\xf5" + string(r),
            lambda: b"\xf7" + length(1 << 20) + module(r),
            lambda: b"\xf3" + length(1) + r.randbytes(4) + module(r),
        )
    )()


def among(image: bytes, r: random.Random) -> bytes:
    """The image with some of these in front of its keys. Its checksum is left out."""
    made = b"".join(r.choice((key, key, between))(r) for _ in range(r.randrange(1, 6)))
    return image[:9] + made + image[9:-8] + bytes(8)
