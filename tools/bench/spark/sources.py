"""Data sources that the batch source is compared with: Python sources that give the same rows in other ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.engine.streams.block import Decoded
from tidelog.spark.source import schemas
from tidelog.spark.source.batch import entries
from tidelog.spark.source.batch.plan import Part
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.batch.snapshots import opened, resolve
from tidelog.spark.source.options import parse

PAGE = 10_000


def _read(path: str) -> Read:
    options = parse({"path": path})
    paths = resolve(options.paths, options.snapshot)
    return read(options, paths, columns_of(options))


class _Source(DataSource):
    """A baseline: it has the columns of `entries`."""

    def schema(self) -> str:
        return schemas.ddl(schemas.ENTRIES)


class Again(_Source):
    """Yields one finished batch again and again: the most that Spark can take in."""

    @classmethod
    def name(cls) -> str:
        return "bench_again"

    def reader(self, schema: types.StructType) -> DataSourceReader:
        return _AgainReader(self.options["path"], int(self.options["entries"]))


class _AgainReader(DataSourceReader):
    def __init__(self, path: str, count: int) -> None:
        self._read = _read(path)
        self._part = self._read.parts()[0]
        self._times = -(-count // PAGE // 8)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._part)] * 8

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = next(self._read.batches(partition.value)).slice(0, PAGE)
        for _ in range(self._times):
            yield batch


class Tuples(_Source):
    """Yields tuples, made with the engine's own decoder: what a simple source does."""

    @classmethod
    def name(cls) -> str:
        return "bench_tuples"

    def reader(self, schema: types.StructType) -> DataSourceReader:
        return _TuplesReader(self.options["path"])


class _TuplesReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._read = _read(path)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in self._read.parts()]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        part: Part = partition.value
        with opened(part.path) as sealed:
            for origin, node in entries.nodes(sealed.rows, part, self._read.wanted.span):
                decoded = Decoded(node.data)
                for entry_id, row in zip(decoded.ids(), decoded.rows()):
                    ms, seq = entry_id >> 64, entry_id & (1 << 64) - 1
                    ts = datetime.fromtimestamp(ms / 1000, UTC)
                    fields = list(zip(row[::2], row[1::2]))
                    yield origin.db, origin.key, f"{ms}-{seq}", ms, seq, ts, fields


class Pages(DataSource):
    """Asks a redis-server for pages of XRANGE with redis-py, and makes Arrow batches of them."""

    @classmethod
    def name(cls) -> str:
        return "bench_pages"

    def schema(self) -> str:
        return "id STRING, fields ARRAY<STRUCT<name: BINARY, value: BINARY>>"

    def reader(self, schema: types.StructType) -> DataSourceReader:
        return _PagesReader(int(self.options["port"]), json.loads(self.options["streams"]))


class _PagesReader(DataSourceReader):
    def __init__(self, port: int, streams: list[str]) -> None:
        self._port = port
        self._streams = streams

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(stream) for stream in self._streams]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        client: Any = redis.Redis(port=self._port)
        start = "-"
        while page := client.xrange(partition.value, start, "+", PAGE):
            ids = [entry_id.decode() for entry_id, _ in page]
            cells = pa.StructArray.from_arrays(
                [
                    pa.array([name for _, row in page for name in row], schemas.BYTES),
                    pa.array([value for _, row in page for value in row.values()], schemas.BYTES),
                ],
                ["name", "value"],
            )
            ends = list(accumulate((len(row) for _, row in page), initial=0))
            places = pa.array(ends, schemas.INT)
            fields = pa.ListArray.from_arrays(places, cells, type=schemas.PAIRS)
            yield pa.RecordBatch.from_arrays([pa.array(ids), fields], ["id", "fields"])
            start = f"({ids[-1]}"


SOURCES = (Again, Tuples, Pages)
