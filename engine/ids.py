"""Entry IDs: parse and format every textual form of spec 3.

An ID is one int, `ms << 64 | seq`, so it compares like the pair. Its text is `ms-seq` in plain decimal.

Redis parses numbers with the C library, so `007-01`, `+8-1` and `10- 1` are IDs too, and `11--05` wraps.
Plain digits take the fast path; everything else goes through `_c_number`, which reproduces that behaviour.
`int()` alone would be wrong: Python reads `1_0` as 10 and `1 ` as 1, and C refuses both.
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
    """The text of an ID, `ms-seq`."""
    return b"%d-%d" % (entry_id >> 64, entry_id & SEQ_MAX)


def parse(arg: bytes, missing_seq: int = 0) -> int:
    """Parse `ms-seq` or `ms`, where `-` and `+` are not allowed (the strict positions of spec 3).

    missing_seq: the seq of a plain `ms`. Raises CommandError(INVALID_ID).
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
    """As `parse`, but None for an invalid ID."""
    try:
        return parse(arg)
    except CommandError:
        return None


def parse_lax(arg: bytes, missing_seq: int) -> int:
    """As `parse`, but `-` is the smallest ID and `+` the greatest (range bounds, XGROUP SETID)."""
    if arg == b"-":
        return 0
    if arg == b"+":
        return MAX
    return parse(arg, missing_seq)


def parse_start(arg: bytes) -> int:
    """Parse the start of a range into the first ID that it includes: `-`, `+`, an ID, or `(` and an ID.

    A missing seq is 0. Raises CommandError(INVALID_ID), or CommandError(INVALID_START) if no ID is left after `(`.
    """
    if arg[:1] == b"(" and len(arg) > 1:
        start = parse(arg[1:], 0)
        if start == MAX:
            raise CommandError(INVALID_START)
        return start + 1
    return parse_lax(arg, 0)


def parse_end(arg: bytes) -> int:
    """Parse the end of a range into the last ID that it includes: as `parse_start`, but a missing seq is the greatest.

    Raises CommandError(INVALID_ID), or CommandError(INVALID_END) if no ID is left before `(`.
    """
    if arg[:1] == b"(" and len(arg) > 1:
        end = parse(arg[1:], SEQ_MAX)
        if end == 0:
            raise CommandError(INVALID_END)
        return end - 1
    return parse_lax(arg, SEQ_MAX)


def parse_add(arg: bytes) -> tuple[int, int | None]:
    """Parse the ID argument of XADD, except `*`: (ms, seq), with seq None for `ms-*`. A missing seq is 0.

    Raises CommandError(INVALID_ID).
    """
    if arg.endswith(b"-*") and b"-" not in arg[:-2]:
        return parse(arg[:-2]) >> 64, None
    entry_id = parse(arg)
    return entry_id >> 64, entry_id & SEQ_MAX


def parse_many(args: list[bytes]) -> list[int]:
    """`parse` of each argument. Raises CommandError(INVALID_ID)."""
    return [parse(arg) for arg in args]


def _parse_odd(arg: bytes, missing_seq: int) -> int:
    if len(arg) > TEXT_BYTES_MAX:
        raise CommandError(INVALID_ID)
    # Redis does not read the bytes after the first NUL, because a C string ends there.
    ms, dash, seq = arg.partition(b"\0")[0].partition(b"-")
    high = _c_number(ms)
    low = _c_number(seq) if dash else missing_seq
    if high is None or low is None:
        raise CommandError(INVALID_ID)
    return high << 64 | low


def _c_number(digits: bytes) -> int | None:
    """The number that Redis's string2ull reads: it tries string2ll, then strtoull. None if both refuse."""
    if _PLAIN_NEGATIVE.fullmatch(digits) and int(digits) >= -(1 << 63):
        # Redis's string2ll reads this negative number, and Redis then rejects it as out of range
        return None
    found = _C_NUMBER.fullmatch(digits)
    if found is None:
        return None
    number = int(found[2])
    if number > SEQ_MAX:
        return None
    return -number & SEQ_MAX if found[1] == b"-" else number
