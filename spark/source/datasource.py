"""TidelogDataSource: what `spark.read`, `readStream`, `write` and `writeStream` of format "tidelog" use.

Spark makes the object in one process, plans the read in a second and reads in a third. So it keeps text and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
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
from pyspark.sql.pandas.types import from_arrow_schema

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import options as batch_options
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.plan import KeysPart, Part
from tidelog.spark.source.batch.read import Read, columns_by, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.log import stream

NAME: Final = "tidelog"
# CREATE TABLE gives the options to `schema` alone, beside others that are about the table, as this one. A query of the
# table gives none to `reader`. But it gives the schema, and a column's metadata keep the options in between.
CREATED: Final = "provider"
OPTIONS: Final = "tidelog.options"


class TidelogDataSource(DataSource):
    """Snapshots as tables, the log as a stream, and a sink. docs/guides/spark.md has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        told = {name.lower(): value for name, value in dict(options).items()}
        self._table = CREATED in told
        self._told = _of_table(told) if self._table else told
        self._batch = self._parsed()

    def _parsed(self) -> tuple[batch_options.Options, tuple[str, ...]] | TidelogSparkError:
        # Spark makes the object once per load and copies it into every plan, so resolve "latest" here. Parsing fails if
        # the options are those of a stream or a sink. So keep the error; only a batch read raises it.
        try:
            parsed = batch_options.parse(self._told)
            return parsed, resolve(parsed.paths, parsed.snapshot)
        except TidelogSparkError as error:
            return error

    @classmethod
    def name(cls) -> str:
        return NAME

    def _resolved(self) -> tuple[batch_options.Options, tuple[str, ...]]:
        if isinstance(self._batch, TidelogSparkError):
            raise self._batch
        return self._batch

    def schema(self) -> types.StructType | str:
        columns = self._columns()
        if not self._table:
            return schemas.ddl(columns)
        schema = from_arrow_schema(pa.schema(list(columns.items())))
        schema.fields[0].metadata[OPTIONS] = json.dumps(self._told)
        return schema

    def _columns(self) -> Mapping[str, pa.DataType]:
        if isinstance(self._batch, TidelogSparkError):
            # Spark does not say what the schema is for. A store without a snapshot can be streamed all the same.
            try:
                return stream.columns(self._told)
            except TidelogSparkError:
                if stream.is_stream(self._told):
                    raise
        options, paths = self._resolved()
        return columns_of(options, len(paths))

    def _take_options(self, schema: types.StructType) -> None:
        """Add the options of a table of the catalog, which only its schema has."""
        stored = next(
            (field.metadata[OPTIONS] for field in schema if OPTIONS in field.metadata), None
        )
        if stored is not None:
            self._told = {**json.loads(stored), **self._told}
            self._batch = self._parsed()
        elif not self._told:
            raise TidelogSparkError(
                batch_options.OPTION,
                "no options came: Spark tells a source in Python no options of a CREATE TABLE that lists its columns. "
                "Leave the columns out, or use CREATE TEMPORARY VIEW name (columns) USING tidelog OPTIONS (...)",
            )

    def reader(self, schema: types.StructType) -> DataSourceReader:
        self._take_options(schema)
        options, paths = self._resolved()
        columns = columns_by(options, arrow_columns(schema))
        return Reader(read(options, paths, columns))

    def streamReader(self, schema: types.StructType) -> DataSourceStreamReader:
        self._take_options(schema)
        return stream.reader(self._told, arrow_columns(schema))

    def writer(self, schema: types.StructType, overwrite: bool) -> DataSourceWriter:
        # here: it needs redis-py, which a query that only reads does without
        from tidelog.spark.source.writing import sink

        return sink.writer(self._told, schema, overwrite)

    def streamWriter(self, schema: types.StructType, overwrite: bool) -> DataSourceStreamWriter:
        # here: as in `writer`
        from tidelog.spark.source.writing import sink

        return sink.stream_writer(self._told, schema, overwrite)


def _of_table(told: Mapping[str, str]) -> dict[str, str]:
    """The options of CREATE TABLE. `told`: what Spark makes of them; a path begins with file: there."""
    options = {
        name.removeprefix("option."): value
        for name, value in told.items()
        if name.startswith("option.")
    }
    path = told.get("path", "")
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return {"path": path, **options} if path else options


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
