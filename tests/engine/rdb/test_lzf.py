"""LZF decompression: in Python, and by the C package."""

import random
from importlib import import_module
from typing import Any

import pytest
from tests.rounds import some_slow_and_soak

from tidelog.engine.rdb import lzf
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


@pytest.fixture
def in_c() -> Any:
    """The C package, whose `compress` is that of Redis."""
    try:
        module = import_module("lzf")
    except ImportError:
        pytest.fail("python-neo-lzf is not installed: pip install 'tidelog[import]'", pytrace=False)
    assert lzf._in_c is module.decompress, "the package is there, and not used"
    return module


def answer(decompressed: Any, data: bytes, length: int) -> bytes | None:
    """The bytes; None if the data was refused."""
    try:
        found: bytes = decompressed(data, length)
    except ValueError:
        return None
    return found


def damaged(data: bytes, r: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((0, 1, 1, 2, 5))):
        out[r.randrange(len(out))] = r.choice((0, 1, 31, 32, 0xE0, 0xFF, r.randrange(256)))
    if r.random() < 0.1:
        del out[r.randrange(len(out)) :]
    return bytes(out)


@pytest.mark.parametrize("count", some_slow_and_soak(4000, 100_000, 2_000_000))
def test_both_give_the_same_bytes_or_refuse(in_c: Any, count: int) -> None:
    r = random.Random(count)
    good = refused = 0
    while good + refused < count:
        data = bytes(r.choices(b"ab\x00cdef", k=r.randrange(5, 300)))
        packed = in_c.compress(data)
        if packed is None:  # it would not be shorter
            continue
        assert in_python(packed, len(data)) == decompress(packed, len(data)) == data
        changed, length = damaged(packed, r), len(data) + r.choice((0, 0, 0, 1, -1, 5))
        found = answer(decompress, changed, length)
        assert answer(in_python, changed, length) == found, (changed, length)
        good += found is not None
        refused += found is None
    assert good > count / 10 and refused > count / 10


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(ValueError, match="cannot stand for 1000000000"):
        decompress(b"\x00a\xe0\xff\x00", 1_000_000_000)
