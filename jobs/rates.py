"""Rates: the option `rate` of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.store.errors import DataError

JOBS_MAX: Final = 1_000_000_000
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `jobs` deliveries in any `period` ms."""

    jobs: int
    period: int

    def __str__(self) -> str:
        return f"{self.jobs}/{next(unit for unit, ms in _UNITS.items() if ms == self.period)}"


def rate_of(given: object) -> Rate | None:
    """The option `rate`: `100/m`, also per `s`, `h` and `d`. Raises DataError."""
    if given is None:
        return None
    number, slash, unit = given.partition("/") if isinstance(given, str) else ("", "", "")
    if not (number.isascii() and number.isdigit() and unit in _UNITS) or len(number) > 10:
        raise DataError(
            f"rate must be a number of jobs per s, m, h or d, such as '100/m', not {given!r}"
        )
    jobs = int(number)
    if not 1 <= jobs <= JOBS_MAX:
        raise DataError(f"rate must allow between 1 and {JOBS_MAX} jobs, not {jobs}")
    return Rate(jobs, _UNITS[unit])
