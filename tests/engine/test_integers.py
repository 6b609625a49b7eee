"""Integers in arguments: the form that Redis accepts, and no other."""

from __future__ import annotations

import random
import re

import pytest

from tidelog.engine.integers import read_int64

FORM = re.compile(rb"0|-?[1-9][0-9]*")


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (b"0", 0),
        (b"7", 7),
        (b"-7", -7),
        (b"999999999999999999", 999_999_999_999_999_999),
        (b"9223372036854775807", (1 << 63) - 1),
        (b"-9223372036854775808", -(1 << 63)),
        *((raw, None) for raw in (b"9223372036854775808", b"-9223372036854775809")),
        *((raw, None) for raw in (b"", b"00", b"007", b"-0", b"+1", b" 1", b"1 ", b"1_0", b"x")),
        *((raw, None) for raw in ("\u0663".encode(), b"1\n", b"0x1", b"1.0")),
    ],
)
def test_the_form_of_an_integer(raw: bytes, number: int | None) -> None:
    assert read_int64(raw) == number


def test_random_words() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    pick = random.Random(seed)
    for _ in range(5000):
        raw = bytes(pick.choices(b"0123456789-", weights=[2] * 10 + [1], k=pick.randrange(21)))
        fits = FORM.fullmatch(raw) and -(1 << 63) <= int(raw) < 1 << 63
        assert read_int64(raw) == (int(raw) if fits else None), raw
