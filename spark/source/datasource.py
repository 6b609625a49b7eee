"""TidelogDataSource: what `spark.read`, `readStream`, `write` and `writeStream` of format "tidelog" use.

Spark makes the object in one process, plans the read in a second and reads in a third. So it keeps text and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import options as batch_options
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.plan import KeysPart, Part
from tidelog.spark.source.batch.read import Read, columns_by, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.log import stream

NAME: Final = "tidelog"


class TidelogDataSource(DataSource):
    """Snapshots as tables, the log as a stream, and a sink. docs/guides/spark.md has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._told = {name.lower(): value for name, value in dict(options).items()}
        # Spark makes the object once per load and copies it into every plan, so resolve "latest" here. Parsing fails if
        # the options are those of a stream or a sink. So keep the error; only a batch read raises it.
        self._batch: tuple[batch_options.Options, tuple[str, ...]] | TidelogSparkError
        try:
            parsed = batch_options.parse(self._told)
            self._batch = parsed, resolve(parsed.paths, parsed.snapshot)
        except TidelogSparkError as error:
            self._batch = error

    @classmethod
    def name(cls) -> str:
        return NAME

    def _resolved(self) -> tuple[batch_options.Options, tuple[str, ...]]:
        if isinstance(self._batch, TidelogSparkError):
            raise self._batch
        return self._batch

    def schema(self) -> str:
        if isinstance(self._batch, TidelogSparkError):
            # Spark does not say what the schema is for. A store without a snapshot can be streamed all the same.
            try:
                return stream.ddl(self._told)
            except TidelogSparkError:
                if stream.is_stream(self._told):
                    raise
        options, paths = self._resolved()
        return schemas.ddl(columns_of(options, len(paths)))

    def reader(self, schema: types.StructType) -> DataSourceReader:
        options, paths = self._resolved()
        columns = columns_by(options, arrow_columns(schema))
        return Reader(read(options, paths, columns))

    def streamReader(self, schema: types.StructType) -> DataSourceStreamReader:
        return stream.reader(self._told, arrow_columns(schema))

    def writer(self, schema: types.StructType, overwrite: bool) -> DataSourceWriter:
        # here: it needs redis-py, which a query that only reads does without
        from tidelog.spark.source.writing import sink

        return sink.writer(self._told, schema, overwrite)

    def streamWriter(self, schema: types.StructType, overwrite: bool) -> DataSourceStreamWriter:
        # here: as in `writer`
        from tidelog.spark.source.writing import sink

        return sink.stream_writer(self._told, schema, overwrite)


_ARROW: Final[dict[type[types.DataType], pa.DataType]] = {
    types.BinaryType: pa.binary(),
    types.StringType: pa.string(),
    types.BooleanType: pa.bool_(),
    types.ByteType: pa.int8(),
    types.ShortType: pa.int16(),
    types.IntegerType: pa.int32(),
    types.LongType: pa.int64(),
    types.FloatType: pa.float32(),
    types.DoubleType: pa.float64(),
    types.DateType: pa.date32(),
    types.TimestampType: schemas.TIME,
}


def arrow_columns(schema: types.StructType) -> dict[str, pa.DataType]:
    """The columns of a Spark schema with their Arrow types. Raises TidelogSparkError."""
    return {field.name: _arrow(field.name, field.dataType) for field in schema.fields}


def _arrow(column: str, kind: types.DataType) -> pa.DataType:
    if isinstance(kind, types.MapType):
        return pa.map_(_arrow(column, kind.keyType), _arrow(column, kind.valueType))
    if isinstance(kind, types.ArrayType):
        return pa.list_(pa.field("element", _arrow(column, kind.elementType)))
    if isinstance(kind, types.StructType):
        return pa.struct([(field.name, _arrow(column, field.dataType)) for field in kind.fields])
    try:
        return _ARROW[type(kind)]
    except KeyError:
        raise TidelogSparkError(
            batch_options.OPTION, f"column {column}: no column can be read as {kind.simpleString()}"
        ) from None


class EntriesPartition(InputPartition):
    """A partition of a batch read."""

    def __init__(self, part: Part | KeysPart) -> None:
        super().__init__(part)


class Reader(DataSourceReader):
    """Reads tables of snapshots.

    It has no `pushFilters`. Spark 4.3 keeps one plan of a Python source for each DataFrame, and pushed filters replace
    that plan. Every later use of the DataFrame, and every other branch of the same query, would then miss the rows that
    the filters exclude.
    """

    def __init__(self, planned: Read) -> None:
        self.planned = planned

    def partitions(self) -> list[InputPartition]:
        return [EntriesPartition(part) for part in self.planned.parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Any = partition.value
        if part is None:  # if a read has no partitions, Spark passes one with None
            return iter(())
        return self.planned.batches(part)
