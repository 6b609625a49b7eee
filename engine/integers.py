"""Integers as Redis parses them in arguments and in strings: signed 64-bit numbers in plain decimal.

No plus sign, no leading zero and no blank is allowed. Python's `int()` is laxer, so the form is checked first.
"""

from __future__ import annotations

import re

from tidelog.engine.errors import NOT_INTEGER, CommandError

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1
_DIGITS_MAX = 20
_DIGITS_SURE = 19  # a number with fewer digits fits into 64 bits
_ZERO = ord("0")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]*")


def read_int64(raw: bytes) -> int | None:
    """The number, or None if `raw` is not one."""
    if raw.isdigit() and len(raw) < _DIGITS_SURE and (raw[0] != _ZERO or len(raw) == 1):
        return int(raw)  # the frequent case, without the pattern
    if len(raw) > _DIGITS_MAX or _INTEGER.fullmatch(raw) is None:
        return None
    value = int(raw)
    return value if INT64_MIN <= value <= INT64_MAX else None


def int64(raw: bytes, error: bytes = NOT_INTEGER) -> int:
    """The number. Raises CommandError(error) if `raw` is not one."""
    value = read_int64(raw)
    if value is None:
        raise CommandError(error)
    return value


def int32(raw: bytes, error: bytes | None = None) -> int:
    """As `int64`, for 32 bits. Without `error`, a number that does not fit raises Redis's out-of-range error."""
    value = int64(raw, error or NOT_INTEGER)
    if not -(1 << 31) <= value < 1 << 31:
        raise CommandError(
            error or b"ERR value is out of range, value must between -2147483648 and 2147483647"
        )
    return value
