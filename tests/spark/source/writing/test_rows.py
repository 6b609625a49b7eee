"""Rows as entries: which column is what, and what a value becomes."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import hiredis
import pyarrow as pa
import pytest
from tests.spark.source.writing.schemas import schema

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.options import write_options
from tidelog.spark.source.writing.rows import columns_of, rows_of

PAIRS = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 500, tzinfo=datetime.UTC)


def commands(ddl: str, arrays: list[pa.Array], **options: str) -> list[list[bytes]]:
    """The commands that rows become, with a schema as Spark has it and arrays as it hands them over."""
    given = schema(ddl)
    columns = columns_of(given, write_options({"url": "redis://h", **options}, streaming=False))
    batch = pa.record_batch(arrays, given.fieldNames())
    reader = hiredis.Reader()
    found: list[Any] = []
    for row in rows_of(batch, columns, lambda n: f"row {n}"):
        reader.feed(row.command)
        found.append(reader.gets())
    assert reader.gets() is False
    return found


def entry(ddl: str, *values: pa.Array) -> dict[bytes, bytes]:
    (command,) = commands(ddl, list(values), stream="s")
    assert command[:3] == [b"XADD", b"s", b"*"]
    return dict(zip(command[3::2], command[4::2], strict=True))


# fmt: off
@pytest.mark.parametrize("kind, array, text", [
    ("string", pa.array(["é"]), "é".encode()),
    ("string", pa.array([""]), b""),
    ("string", pa.array(["x"], pa.large_string()), b"x"),
    ("binary", pa.array([b"\r\n\0\xff"]), b"\r\n\0\xff"),
    ("bigint", pa.array([-(2**63)]), b"-9223372036854775808"),
    ("tinyint", pa.array([7], pa.int8()), b"7"),
    ("boolean", pa.array([True]), b"true"),
    ("double", pa.array([0.1]), b"0.1"),
    ("decimal(9,2)", pa.array([decimal.Decimal("12.50")]), b"12.50"),
    ("date", pa.array([NOON.date()]), b"2026-03-01"),
    ("timestamp", pa.array([NOON], pa.timestamp("us", "UTC")), b"2026-03-01T12:00:00.000500Z"),
    ("timestamp_ntz", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), b"2026-03-01T12:00:00.000500"),
])
# fmt: on
def test_a_value_becomes_text(kind: str, array: pa.Array, text: bytes) -> None:
    assert entry(f"v {kind}", array) == {b"v": text}


def test_fields_that_are_null_are_left_out() -> None:
    assert entry("a string, b int", pa.array([None], pa.string()), pa.array([1])) == {b"b": b"1"}


def test_each_row_can_name_its_stream_and_its_id() -> None:
    arrays = [pa.array([b"\xff", b"t"]), pa.array(["7-0", "8-1"]), pa.array([1, 2])]
    found = commands("key binary, id string, v int", arrays, streamColumn="key", idColumn="id")
    assert found == [[b"XADD", b"\xff", b"7-0", b"v", b"1"], [b"XADD", b"t", b"8-1", b"v", b"2"]]


def test_an_id_may_be_milliseconds() -> None:
    (command,) = commands("id bigint, v int", [pa.array([5]), pa.array([1])], stream="s", idColumn="id")
    assert command[2] == b"5-0"


@pytest.mark.parametrize("offset", [0, 1])
def test_a_column_of_pairs_holds_the_fields(offset: int) -> None:
    rows: list[Any] = [[], [(b"a", b"1"), (b"a", b"2"), (b"b", None)], [(b"c", b"")]]
    array = pa.array([[{"name": n, "value": v} for n, v in row] for row in rows], PAIRS)
    found = commands("fields pairs", [array.slice(1 + offset)], stream="s")
    assert found == [
        [b"XADD", b"s", b"*", b"a", b"1", b"a", b"2"],
        [b"XADD", b"s", b"*", b"c", b""],
    ][offset:]


@pytest.mark.parametrize("offset", [0, 1])
def test_a_column_of_maps_holds_the_fields(offset: int) -> None:
    rows = [[("x", "0")], [("a", "1"), ("b", None)], [("c", "2")]]
    array = pa.array(rows, pa.map_(pa.string(), pa.string())).slice(1 + offset)
    found = commands("fields map<string,string>", [array], stream="s")
    assert found == [[b"XADD", b"s", b"*", b"a", b"1"], [b"XADD", b"s", b"*", b"c", b"2"]][offset:]


def test_a_text_column_called_fields_is_a_field() -> None:
    assert entry("fields string", pa.array(["x"])) == {b"fields": b"x"}


# fmt: off
@pytest.mark.parametrize("ddl, options, text", [
    ("v int", {},
     "column stream must appear exactly once (or give the option stream or streamColumn); the columns are v"),
    ("v int", {"stream": "s", "idColumn": "id"},
     "column id must appear exactly once (the option idColumn names it); the columns are v"),
    ("stream int, v int", {}, "column stream has the type int; a stream must be a string or binary"),
    ("stream string", {}, "no column is left for the entries' fields"),
    ("v array<int>", {"stream": "s"},
     "column v has the type array<int>; a field must be a string, a number, a boolean or a time: use to_json"),
    ("id double, v int", {"stream": "s", "idColumn": "id"},
     "column id has the type double; an ID must be `ms-seq` as a string, or milliseconds"),
    ("stream string, id string, fields map<string,string>", {},
     "column id would not be written, because all fields of an entry come from the column fields: select only "
     "the stream, the ID and fields"),
])
# fmt: on
def test_a_wrong_column_is_named(ddl: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(TidelogSparkError) as raised:
        columns_of(schema(ddl), write_options({"url": "redis://h", **options}, streaming=False))
    assert str(raised.value) == f"[TIDELOG_COLUMN] {text}"


BAD_PAIR = pa.array([[{"name": None, "value": b"x"}]], PAIRS)


# fmt: off
@pytest.mark.parametrize("ddl, arrays, text", [
    ("stream string, v int", [pa.array([None], pa.string()), pa.array([1])], "its stream is null"),
    ("stream string, v int", [pa.array(["s"]), pa.array([None], pa.int32())],
     "it has no field that is not null, but an entry needs at least one"),
    ("stream string, fields pairs", [pa.array(["s"]), pa.array([None], PAIRS)],
     "its fields are null"),
    ("stream string, fields pairs", [pa.array(["s"]), BAD_PAIR],
     "the name of a field is null"),
])
# fmt: on
def test_a_wrong_row_is_named(ddl: str, arrays: list[pa.Array], text: str) -> None:
    with pytest.raises(TidelogSparkError) as raised:
        commands(ddl, arrays)
    assert str(raised.value) == f"[TIDELOG_ROW] row 0: {text}"


@pytest.mark.parametrize("text", [None, "", "x", "1-x", "-", "*", "0-0", "18446744073709551616-0"])
def test_a_wrong_id_is_named(text: str | None) -> None:
    shown = "null" if text is None else repr(text)
    with pytest.raises(TidelogSparkError) as raised:
        commands("id string, v int", [pa.array([text], pa.string()), pa.array([1])], stream="s", idColumn="id")
    assert str(raised.value) == (
        f"[TIDELOG_ROW] row 0: its ID is {shown}, but must be `ms-seq` or `ms`, above 0-0"
    )
