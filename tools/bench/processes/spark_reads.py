"""Reads through a Spark session at local[2], beside other Python data sources that give the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql import types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.spark.session import session
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
        from datetime import UTC, datetime

        from tidelog.engine.streams.block import Decoded

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
        kind = pa.list_(pa.field("element", schemas.PAIRS.value_type))
        while page := client.xrange(partition.value, start, "+", PAGE):
            ids = [entry_id.decode() for entry_id, _ in page]
            fields = [
                [{"name": name, "value": value} for name, value in row.items()] for _, row in page
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array(ids), pa.array(fields, kind)], ["id", "fields"]
            )
            start = f"({ids[-1]}"


class SparkReads:
    """A session. It must not run beside another one in the same process."""

    def __init__(self) -> None:
        self._spark = session("local[2]")
        for source in (Again, Tuples, Pages):
            self._spark.dataSource.register(source)

    def noop(self, source: str, options: dict[str, str]) -> float:
        """Seconds to read everything and drop it."""
        frame = self._spark.read.format(source).options(**options).load()
        start = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - start

    def count(self, options: dict[str, str]) -> list[float]:
        """(entries, seconds) of a count, the planning included."""
        start = time.perf_counter()
        found = self._spark.read.format("tidelog").options(**options).load().count()
        return [found, time.perf_counter() - start]

    def close(self) -> None:
        self._spark.stop()
