"""Hot: the streams and fields that hold the most.

    hot_streams(entries)   db, stream, entries, fields, bytes, share
    hot_fields(entries)    db, stream, name, times, bytes, longest, share

entries, fields, times   bigint: of entries; of fields in all of them; of the field with that name
bytes                    bigint: of names and values, before any overhead or savings of the storage
longest                  bigint: bytes of the longest value
share                    double: of all bytes, 0 to 1

Both are ordered: most bytes first. Both decode every entry of their input. So use the options of the source to select
fewer entries, and use the table `streams` if its `length` is enough.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_BYTES: Final = (
    "aggregate(fields, 0L, (total, f) -> total + octet_length(f.name) + octet_length(f.value))"
)


def hot_streams(entries: DataFrame) -> DataFrame:
    """How many entries and bytes each stream has.

    Args:
        entries: The table `entries` with its `fields` as an array, which is how they are read by default.
    """
    counted = entries.groupBy("db", "stream").agg(
        F.count("*").alias("entries"),
        F.sum(F.size("fields")).alias("fields"),
        F.sum(F.expr(_BYTES)).alias("bytes"),
    )
    return _shared(counted).orderBy(F.desc("bytes"), "db", "stream")


def hot_fields(entries: DataFrame) -> DataFrame:
    """How many bytes the fields of one name have, in each stream.

    Args:
        entries: As for `hot_streams`.
    """
    field = entries.select("db", "stream", F.explode("fields").alias("field"))
    value = F.octet_length("field.value")
    counted = field.groupBy("db", "stream", F.col("field.name").alias("name")).agg(
        F.count("*").alias("times"),
        F.sum(F.octet_length("field.name") + value).alias("bytes"),
        F.max(value).cast("bigint").alias("longest"),
    )
    return _shared(counted).orderBy(F.desc("bytes"), "db", "stream", "name")


def _shared(counted: DataFrame) -> DataFrame:
    """Add each row's share of all bytes: 0 if there are no bytes."""
    total = F.sum("bytes").over(Window.partitionBy())
    share = F.when(total > 0, F.col("bytes") / total).otherwise(F.lit(0.0))
    return counted.withColumn("share", share.cast("double"))
