"""Measures that the analyses share: IDs as numbers, times between, quantiles, due times, and the fields of an entry."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelog.jobs.options import SCHEDULES
from tidelog.jobs.work.later import GROUP, SUFFIX
from tidelog.spark.jobs.terms import MS_MAX

# With more distinct values than this, a quantile is an approximation: its rank is off by at most 1 / ACCURACY of the
# rows.
ACCURACY: Final = 10_000
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def part(entry_id: Column, number: int) -> Column:
    """`ms` (1) or `seq` (2) of an ID as a decimal; null if the text is no ID. A bigint holds only half of the range."""
    return F.split_part(entry_id, F.lit("-"), F.lit(number)).try_cast("decimal(20,0)")


def order(entry_id: Column) -> Column:
    """An ID as a struct that compares as IDs do. Their texts do not: "9-0" is greater than "10-0"."""
    return F.struct(part(entry_id, 1).alias("ms"), part(entry_id, 2).alias("seq"))


def added_at(entry_id: Column) -> Column:
    """The time in an ID, at which Redis added the entry; null beyond timestamps. Wrong if a client chose the ID."""
    ms = part(entry_id, 1)
    return F.when(ms <= MS_MAX, F.timestamp_millis(ms.cast("bigint")))


def ms_between(start: Column, end: Column) -> Column:
    """Milliseconds between two times; null if one is null."""
    return F.unix_millis(end) - F.unix_millis(start)


def quantiles(value: Column, name: str) -> list[Column]:
    """Aggregates `<name>_p50`, `_p95`, `_p99` and `_max`: values that occur; nulls do not count."""
    found = [
        F.percentile_approx(value, at, ACCURACY).alias(f"{name}_{label}")
        for label, at in QUANTILES.items()
    ]
    return [*found, F.max(value).alias(f"{name}_max")]


def has_due_times() -> Column:
    """Whether the group of a row has due times, and no deliveries: `has_due_times` of jobs/work/later.py.

    False, never null, in rows without a group.
    """
    stream = F.col("stream")
    index = (stream == F.lit(SCHEDULES)) | stream.endswith(F.lit(SUFFIX))
    return F.coalesce((F.col("group") == F.lit(GROUP)) & index, F.lit(False))


def field(name: bytes) -> Column:
    """The value of the first field with a name; null if there is none."""
    return F.try_element_at(F.filter("fields", lambda each: each["name"] == F.lit(name)), F.lit(1))[
        "value"
    ]


def text(raw: Column) -> Column:
    """Bytes as text; invalid UTF-8 is replaced."""
    return F.make_valid_utf8(raw.cast("string"))
