"""Schemas of Spark from text, without a JVM, for the few types that these tests use."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T


def pairs(kind: T.DataType) -> T.DataType:
    return T.ArrayType(T.StructType([T.StructField("name", kind), T.StructField("value", kind)]))


KINDS: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "double": T.DoubleType(),
    "decimal(9,2)": T.DecimalType(9, 2),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "array<int>": T.ArrayType(T.IntegerType()),
    "map<string,string>": T.MapType(T.StringType(), T.StringType()),
    "pairs": pairs(T.BinaryType()),
}


def schema(text: str) -> T.StructType:
    """`schema("stream string, n bigint")`. "pairs" is an array of (name, value), both binary."""
    parts = [part.partition(" ") for part in text.split(", ")]
    return T.StructType([T.StructField(name, KINDS[kind]) for name, _, kind in parts])
