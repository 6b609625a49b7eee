"""Latency: how long entries wait for their delivery, and how often they are delivered again.

A snapshot knows the last delivery of entries that are still pending; the log knows every delivery. So there are two
analyses, by db, stream (binary), group (binary) and consumer (binary, null: given back, so nobody holds it):

    pending_latency(pending)      delivery_latency(events)
    pending                       deliveries       all of them
    redelivered                   redeliveries     those that raised the delivery count of a message
    deliveries_max                messages         different IDs
    latency_ms_p50 ... _max       latency_ms_p50 ... _max    from adding to the first delivery
                                  timed            first deliveries whose adding is in the log too
                                  acknowledged     deliveries that an acknowledgement ended
                                  handled_ms_p50 ... _max    from the delivery to its acknowledgement

Delayed jobs and schedules are pending in groups `due` of their own, whose delivery times say when they are due
(jobs/work/later.py). Those are no deliveries, and are left out everywhere.

All counts are bigint; `_ms` columns are bigint milliseconds, null if there is nothing to measure.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.spark.jobs.measures import added_at, has_due_times, ms_between, quantiles

BY: Final = ("db", "stream", "group", "consumer")
DELIVERED: Final = ("delivered", "claimed", "reread")


def pending_latency(pending: DataFrame) -> DataFrame:
    """Latency of pending entries that were delivered once. Of other entries, a snapshot lacks the first delivery.

    Args:
        pending: The table `pending`. The entries are not needed, since an ID has the time at which it was added.
    """
    waited = ms_between(added_at(F.col("id")), F.col("delivered_at"))
    once = F.when(F.col("delivery_count") == 1, waited)
    return (
        pending.where(~has_due_times())
        .groupBy(*BY)
        .agg(
            F.count("*").alias("pending"),
            F.count_if(F.col("delivery_count") > 1).alias("redelivered"),
            F.max("delivery_count").alias("deliveries_max"),
            *quantiles(once, "latency_ms"),
        )
    )


def deliveries(events: DataFrame) -> DataFrame:
    """One row for each delivery in the log.

    Columns: db, stream, group, consumer, id, lsn, event, delivery_count, delivered_at, and

        redelivered      boolean: this delivery raised the delivery count above all earlier ones. A claim that only
                         moves or renews a message (JUSTID) does not raise it
        added_at         timestamp: when the entry was added; null if that is not in these events
        latency_ms       bigint: from adding to this delivery
        acknowledged_at  timestamp: null unless this delivery ended with an acknowledgement
        handled_ms       bigint: from this delivery to its acknowledgement

    Args:
        events: The table `events`. An entry and its deliveries are matched by db, stream and ID. They do not match if
            the stream was renamed in between.
    """
    entry = Window.partitionBy("db", "stream", "id").orderBy("lsn")
    so_far = entry.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    message = Window.partitionBy("db", "stream", "group", "id").orderBy("lsn")
    event, count = F.col("event"), F.col("delivery_count")
    is_delivery = event.isin(*DELIVERED)
    kinds = event.isin("added", "acknowledged", "released", *DELIVERED)
    seen = events.where(kinds & ~has_due_times()).select(
        *(*BY, "id", "lsn", "ts", "event", "delivery_count", "delivered_at"),
        F.last(F.when(event == "added", F.col("ts")), ignorenulls=True)
        .over(so_far)
        .alias("added_at"),
    )
    # The greatest delivery count before this delivery. XNACK can lower a message's count, so the latest count is not
    # enough.
    before = F.max(F.when(is_delivery, count)).over(
        message.rowsBetween(Window.unboundedPreceding, -1)
    )
    acknowledged = F.when(
        F.lead("event").over(message) == "acknowledged", F.lead("ts").over(message)
    )
    told = seen.select(
        *seen.columns,
        (count > F.coalesce(before, F.lit(1))).alias("redelivered"),
        acknowledged.alias("acknowledged_at"),
    ).where(is_delivery)
    return told.select(
        *(*BY, "id", "lsn", "event", "delivery_count", "delivered_at", "redelivered", "added_at"),
        ms_between(F.col("added_at"), F.col("delivered_at")).alias("latency_ms"),
        "acknowledged_at",
        ms_between(F.col("delivered_at"), F.col("acknowledged_at")).alias("handled_ms"),
    )


def delivery_latency(events: DataFrame) -> DataFrame:
    """Latency and redeliveries of all deliveries in these events.

    Args:
        events: The table `events`; see `deliveries`.
    """
    first = F.when(
        (F.col("event") == "delivered") & (F.col("delivery_count") == 1), F.col("latency_ms")
    )
    return (
        deliveries(events)
        .groupBy(*BY)
        .agg(
            F.count("*").alias("deliveries"),
            F.count_if("redelivered").alias("redeliveries"),
            F.count_distinct("id").alias("messages"),
            F.count(first).alias("timed"),
            *quantiles(first, "latency_ms"),
            F.count("acknowledged_at").alias("acknowledged"),
            *quantiles(F.col("handled_ms"), "handled_ms"),
        )
    )
