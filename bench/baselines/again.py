"""A data source of Spark that yields one finished Arrow batch again and again: the most that Spark can take in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

PAGE = 10_000  # rows of the batch
PARTS = 8


class Again(DataSource):
    """It has the columns of tidelog's entries: db, stream, id, ms, seq, ts, fields."""

    @classmethod
    def name(cls) -> str:
        return "bench_again"

    def schema(self) -> str:
        return (
            "db INT, stream BINARY, id STRING, ms LONG, seq LONG, ts TIMESTAMP,"
            " fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"
        )

    def reader(self, schema: types.StructType) -> DataSourceReader:
        return _Reader(int(self.options["entries"]))


class _Reader(DataSourceReader):
    def __init__(self, count: int) -> None:
        self._times = -(-count // PAGE // PARTS)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)] * PARTS

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batch()
        for _ in range(self._times):
            yield batch


def _batch() -> Any:
    cells = pa.struct([("name", pa.binary()), ("value", pa.binary())])
    fields = [{"name": b"user", "value": b"%06d" % 7}, {"name": b"payload", "value": b"7" * 32}]
    fields.append({"name": b"tag", "value": b"7" * 30})
    ms = 1_700_000_000_000
    same = pa.array([0] * PAGE)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([0] * PAGE, pa.int32()),
            pa.array([b"stream-000007"], pa.binary()).take(same),
            pa.array([f"{ms}-{number}" for number in range(PAGE)]),
            pa.array([ms] * PAGE, pa.int64()),
            pa.array(range(PAGE), pa.int64()),
            pa.array([ms * 1000] * PAGE, pa.timestamp("us", "UTC")),
            pa.array([fields], pa.list_(cells)).take(same),
        ],
        ["db", "stream", "id", "ms", "seq", "ts", "fields"],
    )
