"""Entry IDs: every textual form of spec 3, read and written.

An ID is one int, `ms << 64 | seq`: it compares as the pair does. Text is `ms-seq` in plain decimal.

The number reader of Redis is the C library's, so `007-01`, `+8-1` and `10- 1` are IDs too, and `11--05` wraps.
Plain digits take the fast path; everything else goes through `_c_number`, which keeps those accidents.
`int()` alone would be wrong: to Python `1_0` is 10 and ` 1` is 1 in places where C says no.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.engine.errors import INVALID_ID, CommandError

SEQ_MAX: Final = (1 << 64) - 1
MAX: Final = (1 << 128) - 1
TEXT_BYTES_MAX: Final = 127  # Redis copies the argument into char[128]

INVALID_START: Final = b"ERR invalid start ID for the interval"
INVALID_END: Final = b"ERR invalid end ID for the interval"

_C_NUMBER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_PLAIN_NEGATIVE = re.compile(rb"-[1-9][0-9]*")


def text(entry_id: int) -> bytes:
    """The ID as replies show it, `ms-seq`."""
    return b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX)


def parse(arg: bytes, missing_seq: int = 0) -> int:
    """Read `ms-seq` or `ms` where `-` and `+` mean nothing (the strict positions of spec 3).

    Raises CommandError(INVALID_ID).
    """
    ms, dash, seq = arg.partition(b"-")
    if ms.isdigit() and len(arg) <= TEXT_BYTES_MAX:
        if not dash:
            high = int(ms)
            if high <= SEQ_MAX:
                return high << 64 | missing_seq
        elif seq.isdigit():
            high, low = int(ms), int(seq)
            if high <= SEQ_MAX and low <= SEQ_MAX:
                return high << 64 | low
    return _parse_odd(arg, missing_seq)


def parse_or_none(arg: bytes) -> int | None:
    """As `parse`; None for what is no ID."""
    try:
        return parse(arg)
    except CommandError:
        return None


def parse_lax(arg: bytes, missing_seq: int) -> int:
    """As `parse`, where `-` is the smallest ID and `+` the greatest (range bounds, XGROUP SETID)."""
    if arg == b"-":
        return 0
    if arg == b"+":
        return MAX
    return parse(arg, missing_seq)


def parse_start(arg: bytes) -> int:
    """The first ID a range includes: `-`, `+`, an ID, or `(` and an ID (missing sequence 0).

    Raises CommandError(INVALID_ID), or INVALID_START when the exclusion leaves nothing.
    """
    if arg[:1] == b"(" and len(arg) > 1:
        start = parse(arg[1:], 0)
        if start == MAX:
            raise CommandError(INVALID_START)
        return start + 1
    return parse_lax(arg, 0)


def parse_end(arg: bytes) -> int:
    """The last ID a range includes: as `parse_start`, but a missing sequence is the greatest."""
    if arg[:1] == b"(" and len(arg) > 1:
        end = parse(arg[1:], SEQ_MAX)
        if end == 0:
            raise CommandError(INVALID_END)
        return end - 1
    return parse_lax(arg, SEQ_MAX)


def parse_add(arg: bytes) -> tuple[int, int | None]:
    """The ID argument of XADD, `*` excepted: (ms, seq), seq None for `ms-*`. Missing sequence: 0."""
    if arg.endswith(b"-*") and b"-" not in arg[:-2]:
        return parse(arg[:-2]) >> 64, None
    entry_id = parse(arg)
    return entry_id >> 64, entry_id & SEQ_MAX


def parse_many(args: list[bytes]) -> list[int]:
    """Read strict IDs, all before any takes effect. Raises CommandError(INVALID_ID)."""
    return [parse(arg) for arg in args]


def _parse_odd(arg: bytes, missing_seq: int) -> int:
    if len(arg) > TEXT_BYTES_MAX:
        raise CommandError(INVALID_ID)
    # C strings end at the first NUL, so what follows one was never read.
    ms, dash, seq = arg.partition(b"\0")[0].partition(b"-")
    high = _c_number(ms)
    low = _c_number(seq) if dash else missing_seq
    if high is None or low is None:
        raise CommandError(INVALID_ID)
    return high << 64 | low


def _c_number(digits: bytes) -> int | None:
    """What Redis's string2ull makes of a text: string2ll first, then strtoull; None if both refuse."""
    if _PLAIN_NEGATIVE.fullmatch(digits) and int(digits) >= -(1 << 63):
        return None  # read as a negative number, hence out of range
    found = _C_NUMBER.fullmatch(digits)
    if found is None:
        return None
    number = int(found[2])
    if number > SEQ_MAX:
        return None
    return -number & SEQ_MAX if found[1] == b"-" else number
