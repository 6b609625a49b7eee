"""Formats: write Arrow batches as Parquet, ORC, CSV or JSON lines.

Parquet is what other programs read best: zstd, a dictionary only for columns whose values repeat, row groups of about
128 Ki rows with statistics, so that a reader skips what it does not want. CSV and JSON hold text: bytes that are not
UTF-8 become {"base64": "..."}, so that nothing is lost.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tidelog.spark.exports.target import Sink

GROUP_ROWS: Final = 128 << 10
GROUP_BYTES: Final = 64 << 20
SORTED_BY: Final = ("stream", "id_key")
# Columns to encode with a dictionary, because they have few distinct values. The dotted ones hold the field names.
REPEATED: Final = (
    *("db", "stream", "stream_number", "group", "consumer", "type", "event", "snapshot"),
    *("fields.list.element.name", "fields.key_value.key"),
)
_WITHOUT_STATISTICS: Final = frozenset(("fields",))


class Writer(Protocol):
    """Writes batches to a sink."""

    def write(self, table: Any) -> None: ...

    def close(self) -> None: ...


class Parquet:
    """Gathers rows until a row group is full."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        leaves = [pq_path for pq_path in REPEATED if _has(schema, pq_path)]
        options: dict[str, Any] = {}
        if set(SORTED_BY) <= set(schema.names):
            order = [(name, "ascending") for name in SORTED_BY]
            options["sorting_columns"] = pq.SortingColumn.from_ordering(schema, order)
        self._schema = schema
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=leaves or False,
            write_statistics=[name for name in schema.names if name not in _WITHOUT_STATISTICS],
            **options,
        )
        self._held: list[Any] = []
        self._rows = self._nbytes = 0

    def write(self, table: Any) -> None:
        for start in range(0, len(table), GROUP_ROWS):
            part = table.slice(start, GROUP_ROWS)
            self._held.append(part)
            self._rows += len(part)
            self._nbytes += part.nbytes
            if self._rows >= GROUP_ROWS or self._nbytes >= GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=self._rows)
            self._held.clear()
            self._rows = self._nbytes = 0


class Orc:
    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._writer = orc.ORCWriter(sink, compression="zstd")
        self._schema = schema
        self._empty = True

    def write(self, table: Any) -> None:
        self._empty = False
        self._writer.write(table)

    def close(self) -> None:
        if self._empty:
            self._writer.write(self._schema.empty_table())
        self._writer.close()


class Csv:
    """Fields become a JSON list of [name, value]."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._kinds = [pa.field(each.name, _text_type(each.type)) for each in schema]
        self._writer = csv.CSVWriter(sink, pa.schema(self._kinds))

    def write(self, table: Any) -> None:
        columns = [_as_text(column, field.type) for column, field in zip(table.columns, table.schema)]  # fmt: skip
        self._writer.write_table(pa.table(columns, schema=pa.schema(self._kinds)))

    def close(self) -> None:
        self._writer.close()


class Json:
    """One object per line."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._sink = sink

    def write(self, table: Any) -> None:
        for batch in table.to_batches(10_000):
            lines = [json.dumps(_plain(row), ensure_ascii=False) for row in batch.to_pylist()]
            self._sink.write("\n".join(lines).encode("utf-8", "surrogatepass") + b"\n")

    def close(self) -> None:
        """Nothing is held back."""


FORMATS: Final[Mapping[str, tuple[str, Callable[[Sink, pa.Schema], Writer]]]] = {
    "parquet": (".parquet", Parquet),
    "csv": (".csv", Csv),
    "json": (".json", Json),
    "orc": (".orc", Orc),
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
    nested = pa.types.is_nested(kind) or pa.types.is_binary(kind)
    return pa.string() if nested else kind


def _as_text(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_cell(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([_cell(value) for value in column.to_pylist()], pa.string())
    return column


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
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def parquet_batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Iterate over the batches of a Parquet file. pyarrow 19 fails for a file without row groups."""
    if file.num_row_groups:
        yield from file.iter_batches(rows)
