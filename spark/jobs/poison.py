"""Poison: messages that were delivered again and again and are still not acknowledged.

poison(pending)            db, stream, group, id, consumer (binary, null: given back), delivery_count (bigint),
                           added_at, delivered_at (timestamp), exists (false: the entry was deleted meanwhile)
poison_by_group(pending)   db, stream, group, messages, deleted, delivery_count_max (bigint),
                           oldest_id (string), oldest_added_at (timestamp)

Schedules are pending too, and their delivery counts are those of their ticks: they are left out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.spark.jobs.measures import added_at, has_due_times, order

# as many as a queue allows by default before it makes a job a dead job
DELIVERIES: Final = 5


def poison(pending: DataFrame, deliveries: int = DELIVERIES) -> DataFrame:
    """Messages with at least `deliveries` deliveries: those with the most first, then the oldest.

    Args:
        pending: The table `pending`.
        deliveries: The least delivery count.
    """
    found = _too_often(pending, deliveries)
    return found.orderBy(
        *(F.desc("delivery_count"), order(F.col("id")), "db", "stream", "group")
    ).select(
        *("db", "stream", "group", "id", "consumer", "delivery_count"),
        added_at(F.col("id")).alias("added_at"),
        "delivered_at",
        "exists",
    )


def poison_by_group(pending: DataFrame, deliveries: int = DELIVERIES) -> DataFrame:
    """How many such messages each group has, and which is the oldest; the group with the most first.

    Args:
        pending: The table `pending`.
        deliveries: The least delivery count.
    """
    found = _too_often(pending, deliveries)
    counted = found.groupBy("db", "stream", "group").agg(
        F.count("*").alias("messages"),
        F.count_if(~F.col("exists")).alias("deleted"),
        F.max("delivery_count").alias("delivery_count_max"),
        F.min_by("id", order(F.col("id"))).alias("oldest_id"),
    )
    told = counted.withColumn("oldest_added_at", added_at(F.col("oldest_id")))
    return told.orderBy(F.desc("messages"), "db", "stream", "group")


def _too_often(pending: DataFrame, deliveries: int) -> DataFrame:
    return pending.where((F.col("delivery_count") >= deliveries) & ~has_due_times())
