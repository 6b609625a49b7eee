"""Combined: exports and their incremental successors as a data source of Spark, for `tidelog.spark.combine`.

A partition is one file of one export. A worker reads it with pyarrow, drops what later exports removed, and yields the
batches. The driver reads the tables of removals once; they are passed to the workers with the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.spark.exports.combine import Files, files_of
from tidelog.spark.source import schemas

NAME: Final = "tidelog-combined"
EXPORTS: Final = "exports"


class CombinedDataSource(DataSource):
    """Reads the exports of option `exports`, a JSON list of paths or URLs."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._exports: list[str] = json.loads(dict(options)[EXPORTS])

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return schemas.ddl(files_of(self._exports).columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(files_of(self._exports))


class _Reader(DataSourceReader):
    def __init__(self, files: Files) -> None:
        self._files = files

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(place) for place in self._files.places()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        place: Any = partition.value
        if place is None:  # Spark's partition of a read that has none
            return iter(())
        return self._files.read(*place)
