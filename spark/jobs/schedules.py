"""Schedules: those of a database as a table, as of one moment.

Output, one row for each schedule:

    db              int
    name, queue     string: its name, and the queue that gets its jobs; invalid UTF-8 is replaced
    cron, tz        string: a cron expression and its time zone; null for an interval
    every_ms        bigint: an interval; null for a cron expression
    catch_up        string: `one`, `all` or `none`: what happens to ticks that were missed
    value           binary: the value of its jobs, as the codec encoded it
    next_at         timestamp: when it ticks next; null if it is paused, or never ticks again
    ticks           bigint: the jobs that it has put since it was added or resumed
    late_ms         bigint: for how long the next tick has been due at `at`; 0 if it is to come. Workers make the ticks,
                    so this is how long none of that database has fetched
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.jobs.rows import VALUE
from tidelog.jobs.rules import SCHEDULES
from tidelog.jobs.work.later import GROUP as DUE
from tidelog.jobs.work.later import SHIFT_MS
from tidelog.spark.jobs.measures import field, ms_between, text

STREAMS: Final = json.dumps([SCHEDULES.decode()])  # for the option `streams` of the data source


def schedules(
    entries: DataFrame, pending: DataFrame, *, db: int = 0, at: datetime | None = None
) -> DataFrame:
    """The schedules of a database, in no order.

    Args:
        entries: The table `entries`, at least with the stream that `STREAMS` names.
        pending: The table `pending`.
        db: The number of the database.
        at: The moment for which `late_ms` is computed; None: when the query runs.
    """
    now = F.current_timestamp() if at is None else F.lit(at)
    here = (F.col("db") == db) & (F.col("stream") == F.lit(SCHEDULES))
    ticks = pending.where(here & (F.col("group") == F.lit(DUE))).select(
        "id",
        F.timestamp_millis(F.unix_millis("delivered_at") + F.lit(SHIFT_MS)).alias("next_at"),
        F.col("delivery_count").alias("ticks"),
    )
    late = F.when(F.col("next_at") > now, 0).otherwise(ms_between(F.col("next_at"), now))
    return (
        entries.where(here)
        .join(ticks, "id", "left")
        .select(
            F.lit(db).alias("db"),
            *(text(field(name.encode())).alias(name) for name in ("name", "queue", "cron", "tz")),
            text(field(b"every")).try_cast("bigint").alias("every_ms"),
            text(field(b"catch_up")).alias("catch_up"),
            field(VALUE).alias("value"),
            "next_at",
            F.coalesce("ticks", F.lit(0)).alias("ticks"),
            late.alias("late_ms"),
        )
    )
