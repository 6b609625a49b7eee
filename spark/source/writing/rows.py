"""Rows as entries: Arrow batches become XADD commands, packed as the server reads them.

A row is an entry. Its stream is the same for all rows or stands in a column. Its fields are the row's other columns by
their names, without those that are null; or, if there is a column `fields`, what that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.options import WriteOptions

FIELDS_COLUMN: Final = "fields"

TEXT: Final = (T.StringType, T.BinaryType)
# Values of these types become text as Arrow writes it; times become ISO 8601.
SCALARS: Final = (
    *TEXT, T.BooleanType, T.IntegralType, T.FractionalType, T.DateType, T.TimestampType, T.TimestampNTZType,
)  # fmt: skip

XADD: Final = b"*%d\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n%b"
ARGUMENT: Final = b"$%d\r\n%b\r\n"


class Row(NamedTuple):
    """One entry to add.

    command   the whole XADD, packed
    id        None: the server makes it
    """

    stream: bytes
    id: int | None
    command: bytes


class Columns(NamedTuple):
    """Which column of a batch is what.

    stream         the stream of all rows; None: the column `stream_index` has it
    fields_index   the column `fields`; None: the columns of `values`, (index, packed name) are the fields
    """

    stream: bytes | None
    stream_index: int
    id_index: int | None
    fields_index: int | None
    values: tuple[tuple[int, bytes], ...]


def columns_of(schema: T.StructType, options: WriteOptions) -> Columns:
    """Say which column is what. Raises TidelogSparkError TIDELOG_COLUMN, which names the column."""
    names = schema.fieldNames()
    stream_index = -1
    if options.stream is None:
        stream_index = _index(
            names, options.stream_column, "or give the option stream or streamColumn"
        )
        _check_type(schema[stream_index], TEXT, "a stream must be a string or binary")
    id_index = None
    if options.id_column is not None:
        id_index = _index(names, options.id_column, "the option idColumn names it")
        _check_type(
            schema[id_index],
            (*TEXT, T.IntegralType),
            "an ID must be `ms-seq` as a string, or milliseconds",
        )

    rest = [n for n in range(len(names)) if n not in (stream_index, id_index)]
    fields_index = next(
        (n for n in rest if names[n] == FIELDS_COLUMN and _holds_fields(schema[n])), None
    )
    if fields_index is not None:
        left = [names[n] for n in rest if n != fields_index]
        if left:
            raise _wrong(
                left[0], "would not be written, because all fields of an entry come from the column "
                f"{FIELDS_COLUMN}: select only the stream, the ID and {FIELDS_COLUMN}",
            )  # fmt: skip
    elif not rest:
        raise TidelogSparkError("TIDELOG_COLUMN", "no column is left for the entries' fields")
    else:
        for n in rest:
            _check_type(
                schema[n],
                SCALARS,
                "a field must be a string, a number, a boolean or a time: use to_json",
            )
    stream = None if options.stream is None else options.stream.encode()
    values = (
        () if fields_index is not None else tuple((n, _packed(names[n].encode())) for n in rest)
    )
    return Columns(stream, stream_index, id_index, fields_index, values)


def rows_of(batch: pa.RecordBatch, columns: Columns, where: Callable[[int], str]) -> Iterator[Row]:
    """The rows of a batch as entries. `where(n)` describes its n-th row for an error.

    Raises:
        TidelogSparkError: TIDELOG_ROW. A stream, ID or name is null, an ID is invalid, or a row has no field.
    """
    streams: list[bytes | None] = [columns.stream] * batch.num_rows
    if columns.stream is None:
        streams = _texts(batch.column(columns.stream_index))
    entry_ids = None if columns.id_index is None else _texts(batch.column(columns.id_index))
    if columns.fields_index is not None:
        bodies = _from_fields(batch.column(columns.fields_index), where)
    else:
        bodies = _from_columns(
            [(name, _texts(batch.column(n))) for n, name in columns.values], batch.num_rows
        )
    for n, (count, body) in enumerate(bodies):
        stream = streams[n]
        if stream is None:
            raise _bad_row(where(n), "its stream is null")
        if not count:
            raise _bad_row(
                where(n), "it has no field that is not null, but an entry needs at least one"
            )
        number, text = None, b"*"
        if entry_ids is not None:
            number = _id(entry_ids[n], where(n))
            text = ids.text(number)
        words = 3 + 2 * count
        yield Row(stream, number, XADD % (words, len(stream), stream, len(text), text, body))


def _from_columns(
    columns: list[tuple[bytes, list[bytes | None]]], nrows: int
) -> Iterator[tuple[int, bytes]]:
    """(number of fields, the fields packed) of each row, from columns of values."""
    for n in range(nrows):
        parts = []
        for name, texts in columns:
            text = texts[n]
            if text is not None:
                parts.append(b"%b$%d\r\n%b\r\n" % (name, len(text), text))
        yield len(parts), b"".join(parts)


def _from_fields(column: pa.Array, where: Callable[[int], str]) -> Iterator[tuple[int, bytes]]:
    """The same from a column of maps, or of arrays of (name, value)."""
    if pa.types.is_map(column.type):
        names, values = _texts(column.keys), _texts(column.items)
    else:
        pairs = column.values
        names, values = _texts(pc.struct_field(pairs, 0)), _texts(pc.struct_field(pairs, 1))
    offsets = column.offsets.to_pylist()
    nulls = column.is_null().to_pylist()
    for n, null in enumerate(nulls):
        if null:
            raise _bad_row(where(n), "its fields are null")
        parts = []
        for at in range(offsets[n], offsets[n + 1]):
            name, value = names[at], values[at]
            if name is None:
                raise _bad_row(where(n), "the name of a field is null")
            if value is not None:
                parts.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(value), value))
        yield len(parts), b"".join(parts)


def _texts(column: pa.Array) -> list[bytes | None]:
    """The values of a column as bytes."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else ""))
    elif not _is_text(kind):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    texts: list[bytes | None] = column.to_pylist()
    return texts


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )  # fmt: skip


def _id(text: bytes | None, where: str) -> int:
    try:
        number = ids.parse(text or b"")
    except CommandError:
        number = 0
    if not number:
        shown = "null" if text is None else repr(text.decode(errors="replace"))
        raise _bad_row(where, f"its ID is {shown}, but must be `ms-seq` or `ms`, above 0-0")
    return number


def _packed(word: bytes) -> bytes:
    return ARGUMENT % (len(word), word)


def _holds_fields(field: T.StructField) -> bool:
    match field.dataType:
        case T.MapType(keyType=key, valueType=value):
            return isinstance(key, TEXT) and isinstance(value, TEXT)
        case T.ArrayType(elementType=T.StructType(fields=[name, value])):
            return isinstance(name.dataType, TEXT) and isinstance(value.dataType, TEXT)
    return False


def _index(names: list[str], name: str, why: str) -> int:
    if names.count(name) != 1:
        found = "it is repeated" if name in names else f"the columns are {', '.join(names)}"
        raise _wrong(name, f"must appear exactly once ({why}); {found}")
    return names.index(name)


def _check_type(field: T.StructField, allowed: tuple[Any, ...], rule: str) -> None:
    if not isinstance(field.dataType, allowed):
        raise _wrong(field.name, f"has the type {field.dataType.simpleString()}; {rule}")


def _wrong(name: str, fault: str) -> TidelogSparkError:
    return TidelogSparkError("TIDELOG_COLUMN", f"column {name} {fault}")


def _bad_row(where: str, fault: str) -> TidelogSparkError:
    return TidelogSparkError("TIDELOG_ROW", f"{where}: {fault}")
