"""Lag: how far the groups are behind, from snapshot to snapshot.

Input: the table `groups`, read with snapshot=all (or several paths), so that it has `snapshot` and `snapshot_lsn`.
Output, one row for each group and snapshot:

    db, stream, group, snapshot, snapshot_lsn
    lag, pending    bigint: entries not yet delivered (null: unknown); delivered and not yet acknowledged
    behind          bigint: both together
    lag_change      bigint: `lag` minus that of the snapshot before; null in the first one that has the group
    read            bigint: entries delivered since the snapshot before
    added           bigint: entries added since then: `read` and `lag_change` together

The groups `due` of delayed jobs and of schedules are left out: their pending entries wait for no acknowledgement.

`read` and `added` are estimates after deletions, trims or an XGROUP SETID, as `lag` and `entries_read` are in Redis.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.spark.jobs.measures import has_due_times


def lag_over_snapshots(groups: DataFrame) -> DataFrame:
    """The lag of each group in each snapshot, and what changed since the snapshot before. One store at a time.

    Args:
        groups: The table `groups` of several snapshots.
    """
    before = Window.partitionBy("db", "stream", "group").orderBy("snapshot_lsn")
    change = F.col("lag") - F.lag("lag").over(before)
    read = F.col("entries_read") - F.lag("entries_read").over(before)
    return groups.where(~has_due_times()).select(
        *("db", "stream", "group", "snapshot", "snapshot_lsn", "lag", "pending"),
        (F.col("lag") + F.col("pending")).alias("behind"),
        change.alias("lag_change"),
        read.alias("read"),
        (read + change).alias("added"),
    )
