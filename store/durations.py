"""Durations as callers pass them: a number of seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidelog.store.errors import DataError

SECONDS_MAX = 10 * 365 * 86_400.0  # far longer than any real wait, and far below an overflow
Duration = float | timedelta


def seconds(name: str, value: Any, zero: bool = False) -> float:
    """A duration in seconds; must be above 0, or at least 0 with `zero`. Raises DataError."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number:
        raise DataError(f"{name} must be a number of seconds or a timedelta, not {value!r}")
    if number > SECONDS_MAX or number < 0 or not (number or zero):
        least = "at least 0" if zero else "more than 0"
        raise DataError(
            f"{name} must be {least} and at most {SECONDS_MAX:.0f} seconds, not {value!r}"
        )
    return float(number)


def patience(name: str, value: Any) -> float | None:
    """A duration to wait, at least 0, in seconds; None = for ever. Raises DataError."""
    return None if value is None else seconds(name, value, zero=True)
