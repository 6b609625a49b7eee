"""LZF decompression."""

import random

import pytest

from tidelog.engine.rdb.lzf import decompress, in_python


def compressed(data: bytes, r: random.Random) -> bytes:
    """A valid form of `data`, found by a slow search that takes any match."""
    out = bytearray()
    literal = bytearray()

    def flush() -> None:
        for at in range(0, len(literal), 32):
            part = literal[at : at + 32]
            out.append(len(part) - 1)
            out.extend(part)
        literal.clear()

    at = 0
    while at < len(data):
        best = length = 0
        for back in r.sample(range(1, at + 1), min(at, 30)) if at else ():
            n = 0
            while n < 264 and at + n < len(data) and data[at + n] == data[at - back + n]:
                n += 1
            if n > length and back <= 8192:
                best, length = back, n
        if length < 3:
            literal.append(data[at])
            at += 1
            continue
        flush()
        high, low = divmod(best - 1, 256)
        if length - 2 < 7:
            out += bytes(((length - 2) << 5 | high, low))
        else:
            out += bytes((7 << 5 | high, length - 9, low))
        at += length
    flush()
    return bytes(out)


def test_random_data() -> None:
    r = random.Random(5)
    for size in (1, 2, 30, 33, 100, 700, 2000):
        data = bytes(r.choice(b"ab\x00") for _ in range(size)) + b"z" * r.randrange(300)
        packed = compressed(data, r)
        assert decompress(packed, len(data)) == in_python(packed, len(data)) == data


# fmt: off
@pytest.mark.parametrize(("packed", "length", "reason"), [
    (b"\x00a", 2, "do not stand for 2 bytes"),
    (b"\x01ab", 1, "do not stand for 1 bytes"),
    (b"\x05ab", 6, "end in the middle"),
    (b"\x00a\x20", 4, "end in the middle"),
    (b"\xe0", 9, "end in the middle"),
    (b"\x00a\x20\x05", 4, "before their beginning"),
    (b"\x00a\xe0\xff\x00" + b"\xe0\xff\x00" * 9, 300, "do not stand for 300"),
])
# fmt: on
def test_what_is_no_lzf(packed: bytes, length: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        in_python(packed, length)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(ValueError, match="cannot stand for 1000000000"):
        decompress(b"\x00a\xe0\xff\x00", 1_000_000_000)
