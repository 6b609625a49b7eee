"""The analyses of spark/jobs in a Spark session, as the rows of a report. No other module of it loads pyspark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelog.spark.jobs import hot, lag, latency, poison, queue
from tidelog.spark.jobs.measures import quantiles
from tidelog.tools.report.rows import Queue, Rows


class OverSpark:
    """Implements `content.Analyses`. `events`: the table `events`, None without the log."""

    def __init__(
        self,
        spark: SparkSession,
        snapshots: Sequence[tuple[str, int]],
        path: str,
        now_ms: int,
        events: DataFrame | None,
    ) -> None:
        self.snapshots, self.path, self.now_ms = snapshots, path, now_ms
        self.has_events = events is not None
        self._spark, self._events = spark, events

    def _table(self, name: str, **options: str) -> DataFrame:
        read = self._spark.read.format("tidelog").option("table", name)
        return read.options(**options).load(self.path)

    def hot_streams(self, top: int) -> Rows:
        return _rows(hot.hot_streams(self._table("entries")).limit(top))

    def hot_fields(self, top: int) -> Rows:
        return _rows(hot.hot_fields(self._table("entries")).limit(top))

    def latency(self, top: int) -> Rows:
        if self._events is None:
            found, first = latency.pending_latency(self._table("pending")), "pending"
        else:
            found, first = latency.delivery_latency(self._events), "deliveries"
        return _rows(found.orderBy(F.desc(first), *latency.BY).limit(top))

    def lag(self) -> Rows:
        groups = (
            self._spark.read.format("tidelog")
            .option("table", "groups")
            .option("columns", "db,stream,group,lag,pending,entries_read,snapshot,snapshot_lsn")
            .option("paths", json.dumps([path for path, _ in self.snapshots]))
            .load()
        )
        return _rows(lag.lag_over_snapshots(groups))

    def poison_by_group(self, least: int) -> Rows:
        found = poison.poison_by_group(self._table("pending"), least)
        return _rows(found.drop("oldest_added_at"))

    def poison(self, least: int, top: int) -> Rows:
        # Times as numbers: Python has no datetime beyond the year 9999.
        times = {name: F.unix_millis(name) for name in ("added_at", "delivered_at")}
        worst = poison.poison(self._table("pending"), least).withColumns(times)
        return _rows(worst.limit(top))

    def jobs(self, asked: Queue) -> Rows:
        every = queue.jobs(
            self._table("entries", db=str(asked.db), streams=queue.streams_of(asked.name)),
            self._table("groups", db=str(asked.db)),
            self._table("pending", db=str(asked.db)),
            asked.name,
            group=asked.group,
            db=asked.db,
            at=datetime.fromtimestamp(self.now_ms / 1000, UTC),
            codec="bytes",
            events=self._events,
        )
        counted = every.groupBy("state").agg(
            F.count("*").alias("jobs"),
            F.max("deliveries").alias("deliveries"),
            F.count("last_error").alias("errors"),
            F.min(F.unix_millis("put_at")).alias("oldest"),
            *quantiles(F.col("waited_ms"), "waited_ms"),
            *quantiles(F.col("worked_ms"), "worked_ms"),
        )
        return _rows(counted)


def _rows(found: DataFrame) -> Rows:
    return [row.asDict() for row in found.collect()]
