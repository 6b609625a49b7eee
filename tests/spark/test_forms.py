"""The forms of the fields say the same as the store, and a bad value fails only a read that has its entry."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.rounds import rest_slow
from tests.spark.histories import Told, lives
from tests.spark.rows import rows, typed_rows

import tidelog
from tidelog.spark.errors import TidelogSparkError

FORMS = ("array", "map", "json")
BAD = b"\xff\xfe"


def text(value: bytes) -> str | None:
    """A value as onBadValue=null has it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def first_of_each(fields: list[dict[str, bytes]]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for each in fields:
        found.setdefault(each["name"], each["value"])
    return found


def by_id(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr((row["db"], row["stream"], row["id"], row["fields"])) for row in found)


def has_odd_names(told: Told) -> bool:
    return any(
        text(each["name"]) is None for row in told.tables["entries"] for each in row["fields"]
    )


def check(told: Told) -> None:
    entries = told.tables["entries"]
    columns = "db,stream,id,fields"

    def wanted(form: Any) -> Counter[str]:
        return by_id([{**row, "fields": form(row["fields"])} for row in entries])

    maps = rows(told.path, columns=columns, fields="map")
    assert by_id(maps) == wanted(lambda fields: list(first_of_each(fields).items()))
    for verify in ("crc", "none"):
        found = rows(told.path, columns=columns, verify=verify)
        assert by_id(found) == wanted(lambda fields: fields)
    utf8 = {"decode": "utf8", "onBadValue": "null", "columns": columns}
    if has_odd_names(told):
        with pytest.raises(TidelogSparkError, match=r"a field's name.*decode=none"):
            rows(told.path, **utf8)
    else:
        found = rows(told.path, **utf8)
        assert by_id(found) == wanted(
            lambda fields: [{"name": text(f["name"]), "value": text(f["value"])} for f in fields]
        )
        found = rows(told.path, fields="json", **utf8)
        assert by_id([{**row, "fields": json.loads(row["fields"])} for row in found]) == wanted(
            lambda fields: {text(name): text(each) for name, each in first_of_each(fields).items()}
        )
    schema = {"id": pa.string(), "stream": pa.binary(), "db": pa.int32(), "f": pa.binary()}
    wide = typed_rows(told.path, {**schema, "n": pa.int32()}, fields="wide", onBadValue="null")
    assert Counter(repr((r["db"], r["stream"], r["id"], r["f"])) for r in wide) == Counter(
        repr((r["db"], r["stream"], r["id"], first_of_each(r["fields"]).get(b"f"))) for r in entries
    )


@pytest.mark.parametrize("first", rest_slow(range(7_000, 7_200, 10), 2))
def test_forms_of_random_stores(tmp_path: Path, first: int) -> None:
    for seed, told in lives(tmp_path, range(first, first + 3), 40):
        print("seed", seed)
        check(told)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Three entries in one block; the first has a bad value, the second a bad name and is deleted."""
    with tidelog.open(tmp_path / "store") as db:
        db.xadd("s", {"f": BAD}, id="1-0")
        db.xadd("s", {BAD: "2", "f": "x"}, id="2-0")
        db.xadd("s", {"f": "3"}, id="3-0")
        db.xdel("s", "2-0")
        db.snapshot()
    return tmp_path / "store"


@pytest.mark.parametrize("form", FORMS)
def test_bad_values_of_other_entries_do_not_matter(bad: Path, form: str) -> None:
    options = {"fields": form, "decode": "utf8", "columns": "id,fields"}
    with pytest.raises(TidelogSparkError, match="TIDELOG_BAD_VALUE.*is not UTF-8"):
        rows(bad, **options)
    assert [row["id"] for row in rows(bad, onBadValue="null", **options)] == ["1-0", "3-0"]
    (row,) = rows(bad, startId="2", **options)
    assert row["id"] == "3-0" and "3" in str(row["fields"])


def test_bad_values_of_other_entries_do_not_matter_to_columns(bad: Path) -> None:
    schema = {"id": pa.string(), "f": pa.int32()}
    with pytest.raises(TidelogSparkError, match="TIDELOG_BAD_VALUE.*column f"):
        typed_rows(bad, schema, fields="wide")
    assert typed_rows(bad, schema, fields="wide", startId="2") == [{"id": "3-0", "f": 3}]
    found = typed_rows(bad, schema, fields="wide", onBadValue="null")
    assert found == [{"id": "1-0", "f": None}, {"id": "3-0", "f": 3}]
