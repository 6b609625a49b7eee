"""Rows: what the analyses of a report give, in Spark or in plain Python. Times in them are unix ms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tidelog.spark.jobs.terms import MS_MAX

Row = dict[str, Any]
Rows = Sequence[Row]
SHARES: Final = {"p50": 50, "p95": 95, "p99": 99, "max": 100}  # percent


class Queue(NamedTuple):
    """A queue whose jobs are shown."""

    db: int
    name: str
    group: str


def quantiles(name: str, values: Iterable[int | None]) -> Row:
    """`<name>_p50` to `_max`, by the nearest rank; None if there is no value."""
    known = sorted(value for value in values if value is not None)
    return {
        f"{name}_{label}": known[-(-percent * len(known) // 100) - 1] if known else None
        for label, percent in SHARES.items()
    }


def timestamp(ms: int) -> int | None:
    """A time, None if it is beyond the timestamps of Spark."""
    return ms if -MS_MAX <= ms <= MS_MAX else None


def between(start: int | None, end: int | None) -> int | None:
    """Milliseconds between two times; None if one is unknown."""
    return None if start is None or end is None else end - start
