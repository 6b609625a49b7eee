"""Formats: write an Arrow table as Parquet, ORC, CSV or JSON lines.

Parquet is what other programs read best: zstd, a dictionary only for columns whose values repeat, row groups of about
128 Ki rows with statistics, so that a reader skips what it does not want. CSV and JSON hold text: bytes that are not
UTF-8 become {"base64": "..."}, so that nothing is lost. Times are ISO 8601 in UTC.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tidelog.spark.exports.target import Sink

GROUP_ROWS: Final = 128 << 10
JSON_ROWS: Final = 10_000
ORC_TIME_MAX: Final = ((1 << 63) - 1) // 1000  # microseconds
SORTED_BY: Final = ("stream", "id_key")
# Columns to encode with a dictionary, because they have few distinct values. The dotted ones hold the field names.
REPEATED: Final = (
    *("db", "stream", "stream_number", "group", "consumer", "type", "event", "snapshot"),
    *("fields.list.element.name", "fields.key_value.key"),
)
_WITHOUT_STATISTICS: Final = frozenset(("fields",))


class Parquet:
    def __init__(self, sink: Sink, schema: pa.Schema, *, compressed: bool) -> None:
        compression = "zstd" if compressed else "none"
        self._writer = pq.ParquetWriter(sink, schema, compression=compression, **_options(schema))

    def write(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=GROUP_ROWS)

    def close(self) -> None:
        self._writer.close()


@lru_cache(16)
def _options(schema: pa.Schema) -> dict[str, Any]:
    """The options of a Parquet writer. Kept, because an export may have thousands of small files."""
    options: dict[str, Any] = {
        "use_dictionary": [path for path in REPEATED if _has(schema, path)] or False,
        "write_statistics": [name for name in schema.names if name not in _WITHOUT_STATISTICS],
        "write_page_checksum": True,
    }
    if set(SORTED_BY) <= set(schema.names):
        order = [(name, "ascending") for name in SORTED_BY]
        options["sorting_columns"] = pq.SortingColumn.from_ordering(schema, order)
    return options


class Orc:
    """Times after the year 2262 become null: readers that count in nanoseconds refuse a whole file with one of them."""

    def __init__(self, sink: Sink, schema: pa.Schema, *, compressed: bool) -> None:
        self._writer = orc.ORCWriter(sink, compression="zstd" if compressed else "uncompressed")

    def write(self, table: Any) -> None:
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                column = table.column(at)
                far = pc.greater(column.cast(pa.int64()), ORC_TIME_MAX)
                column = pc.if_else(far, pa.scalar(None, field.type), column)
                table = table.set_column(at, field, column)
        self._writer.write(table)

    def close(self) -> None:
        self._writer.close()


class Csv:
    """Fields become a JSON list of [name, value]."""

    def __init__(self, sink: Sink, schema: pa.Schema, *, compressed: bool) -> None:
        self._kinds = [pa.field(each.name, _text_type(each.type)) for each in schema]
        self._writer = csv.CSVWriter(sink, pa.schema(self._kinds))

    def write(self, table: Any) -> None:
        columns = [_as_text(column, field.type) for column, field in zip(table.columns, table.schema)]  # fmt: skip
        self._writer.write_table(pa.table(columns, schema=pa.schema(self._kinds)))

    def close(self) -> None:
        self._writer.close()


class Json:
    """One object per line."""

    def __init__(self, sink: Sink, schema: pa.Schema, *, compressed: bool) -> None:
        self._sink = sink

    def write(self, table: Any) -> None:
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(at, field.name, _times(table.column(at)))
        for batch in table.to_batches(JSON_ROWS):
            lines = [json.dumps(_plain(row), ensure_ascii=False) for row in batch.to_pylist()]
            self._sink.write("\n".join(lines).encode() + b"\n")

    def close(self) -> None:
        """Nothing is held back."""


class Format(NamedTuple):
    """A format: how its files' names end, and its writer."""

    suffix: str
    writer: type[Parquet] | type[Orc] | type[Csv] | type[Json]


FORMATS: Final[Mapping[str, Format]] = {
    "parquet": Format(".parquet", Parquet),
    "csv": Format(".csv", Csv),
    "json": Format(".json", Json),
    "orc": Format(".orc", Orc),
}


def _has(schema: pa.Schema, path: str) -> bool:
    name, _, rest = path.partition(".")
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    if not rest:
        return True
    return bool(pa.types.is_map(kind) if rest.startswith("key_value") else pa.types.is_list(kind))


def _text_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    told = types.is_nested(kind) or types.is_binary(kind) or types.is_timestamp(kind)
    return pa.string() if told else kind


def _as_text(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_cell(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([_cell(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return _times(column)
    return column


def _times(column: Any) -> Any:
    """Timestamps as text, by NumPy: Python has no year above 9999, and Arrow writes wrong ones above 32767."""
    whole = column.combine_chunks()
    told = np.datetime_as_string(
        whole.cast(pa.int64()).fill_null(0).to_numpy().view("M8[us]"), "us"
    )
    return pa.array(
        [f"{each}Z" for each in told], pa.string(), mask=whole.is_null().to_numpy(False)
    )


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, list):
        value = [
            [_plain(part) for part in (each.values() if isinstance(each, dict) else each)]
            for each in value
        ]
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def parquet_batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Iterate over the batches of a Parquet file. pyarrow 19 fails for a file without row groups."""
    if file.num_row_groups:
        yield from file.iter_batches(rows)
