"""Entry IDs: the forms of spec 3, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine import ids
from tidelog.engine.errors import INVALID_ID, CommandError
from tidelog.engine.ids import INVALID_END, INVALID_START, MAX, SEQ_MAX

TOP = b"18446744073709551615"

# fmt: off
ACCEPTED = [
    (b"5-3", 5, 3), (b"5", 5, 99), (b"007-01", 7, 1), (b"+8-1", 8, 1), (b"10- 1", 10, 1), (b" \t7-1", 7, 1),
    (b"11--05", 11, SEQ_MAX - 4), (b"0-0", 0, 0), (TOP + b"-" + TOP, SEQ_MAX, SEQ_MAX), (b"5-3\0junk", 5, 3),
    (b"5\0-3", 5, 99), (b"1--9223372036854775809", 1, 2**63 - 1), (b"1- -5", 1, SEQ_MAX - 4),
]
REFUSED = [
    b"", b"-", b"+", b"-1", b"5-", b"-5-3", b"5-3-1", b"11--5", b"0x5-1", b"5-1 ", b"1_0-1", b"1e3", b"5-*", b"*",
    b"18446744073709551616-0", b"0-18446744073709551616", b"1" * 128, b"(5", b"\xb2-1", b"5.0", b"++5", b"\0",
]
# fmt: on


@pytest.mark.parametrize(("arg", "ms", "seq"), ACCEPTED)
def test_accepted(arg: bytes, ms: int, seq: int) -> None:
    assert ids.parse(arg, 99) == ms << 64 | seq


@pytest.mark.parametrize("arg", REFUSED)
def test_refused(arg: bytes) -> None:
    with pytest.raises(CommandError) as refused:
        ids.parse(arg)
    assert refused.value.line == INVALID_ID


@given(st.integers(0, MAX))
def test_text_is_read_back(entry_id: int) -> None:
    assert ids.parse(ids.text(entry_id)) == entry_id


def test_127_bytes_are_an_id_and_128_are_not() -> None:
    assert ids.parse(b"0" * 124 + b"1-2") == 1 << 64 | 2
    with pytest.raises(CommandError):
        ids.parse(b"0" * 125 + b"1-2")


# fmt: off
@pytest.mark.parametrize(("arg", "start", "end"), [
    (b"-", 0, 0), (b"+", MAX, MAX), (b"5", 5 << 64, 5 << 64 | SEQ_MAX), (b"5-3", 5 << 64 | 3, 5 << 64 | 3),
    (b"(5", 5 << 64 | 1, (5 << 64 | SEQ_MAX) - 1), (b"(5-3", 5 << 64 | 4, 5 << 64 | 2),
])
# fmt: on
def test_range_bounds(arg: bytes, start: int, end: int) -> None:
    assert (ids.parse_start(arg), ids.parse_end(arg)) == (start, end)


def test_exclusions_that_leave_nothing() -> None:
    with pytest.raises(CommandError) as refused:
        ids.parse_start(b"(" + TOP + b"-" + TOP)
    assert refused.value.line == INVALID_START
    with pytest.raises(CommandError) as refused:
        ids.parse_end(b"(0-0")
    assert refused.value.line == INVALID_END


@pytest.mark.parametrize("arg", [b"(-", b"(+", b"(", b"((5", b"$", b">"])
def test_bounds_that_are_none(arg: bytes) -> None:
    for parse in (ids.parse_start, ids.parse_end):
        with pytest.raises(CommandError) as refused:
            parse(arg)
        assert refused.value.line == INVALID_ID
