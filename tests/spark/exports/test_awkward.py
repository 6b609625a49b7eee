"""Stores with everything that is unusual, exported by the command: no row is missing, and each error is one line."""

from __future__ import annotations

import base64
import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from tests.rounds import rest_slow
from tests.spark.histories import Life, Told
from tests.spark.test_tables import assert_same
from tests.tools.conftest import Run, run

from tidelog.tools import exits

__all__ = ["run"]

pytestmark = pytest.mark.usefixtures("tasks_in_this_process")

TABLES = ("entries", "streams", "groups", "consumers", "pending", "keys")
LONG = b"long" * 25_000
ODD = b"\xff\x00 odd"
FAR = (
    b"253402300800000-0",  # the year 10000, which Python does not have
    b"9007199254740993-0",  # beyond what a double holds
    b"9223372036854775-0",  # the last timestamp, in the year 294247
    b"9223372036854776-0",
    b"9223372036854775807-18446744073709551615",
    b"18446744073709551615-1",  # beyond bigint
)


def commands(life: Life) -> None:
    run_ = life.run
    for key in (b"", ODD, LONG, b"both"):
        run_(b"XADD", key, b"1-1", b"f", b"of %d" % len(key), b"", b"")
    for entry_id in FAR:
        run_(b"XADD", b"far", entry_id, b"f", b"1")
    run_(b"XADD", b"names", b"1-1", b"\xff", b"\xfe\x00", b"f", b"", b"f", b"again")
    run_(b"XADD", b"values", b"1-1", b"f", b"\xfe\x00")
    run_(b"SET", b"text", b"12345")
    run_(b"XGROUP", b"CREATE", b"empty", b"nobody", b"0", b"MKSTREAM")
    life.core.settings.stream_node_max_entries = 3
    for at in range(1, 13):
        run_(b"XADD", b"holes", b"%d-0" % at, b"f", b"%d" % at)
    run_(b"XDEL", b"holes", b"4-0", b"5-0", b"6-0", b"12-0")
    run_(b"XGROUP", b"CREATE", b"holes", b"g", b"0")
    run_(b"XREADGROUP", b"GROUP", b"g", b"ann", b"COUNT", b"6", b"STREAMS", b"holes", b">")
    run_(b"XDEL", b"holes", b"2-0")  # still pending
    run_(b"XNACK", b"holes", b"g", b"FAIL", b"IDS", b"1", b"3-0")
    run_(b"XADD", b"all gone", b"1-0", b"f", b"1")
    run_(b"XDEL", b"all gone", b"1-0")
    life.number = 1
    run_(b"XADD", b"both", b"1-1", b"f", b"in the other database")
    run_(b"SET", b"far", b"a string here")
    life.number = 0


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Told:
    life = Life(tmp_path_factory.mktemp("awkward") / "store", 1)
    try:
        commands(life)
        return life.told()
    finally:
        life.close()


def files(to: Path, table: str) -> list[Path]:
    seal = json.loads((to / "_manifest.json").read_text())
    return [to / file["name"] for file in seal["files"] if file["table"] == table]


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row of entries as text formats have it."""
    fields = [[plain(each["name"]), plain(each["value"])] for each in row["fields"]]
    return row["db"], plain(row["stream"]), row["id"], fields


def plain(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def check(told: Told, to: Path, form: str) -> None:
    wanted = in_order([shown(row) for row in told.tables["entries"]])
    found: list[dict[str, Any]] = []
    for file in files(to, "entries"):
        if form == "csv":
            csv.field_size_limit(1 << 20)
            with file.open(newline="") as lines:
                found += csv.DictReader(lines)
        elif form == "json":
            found += [json.loads(line) for line in file.read_text().splitlines()]
        elif form == "orc":
            found += orc.read_table(file).to_pylist()
        else:
            found += pq.read_table(file).drop_columns(["ts"]).to_pylist()
    if form in ("csv", "json"):
        rows = []
        for row in found:
            fields = json.loads(row["fields"]) if form == "csv" else row["fields"]
            if form == "json":
                fields = [[each["name"], each["value"]] for each in fields]
            key = row["stream"]
            if form == "csv" and isinstance(key, str) and key.startswith("{"):
                key = json.loads(key)
            rows.append((int(row["db"]), key, row["id"], fields))
        assert in_order(rows) == wanted
        times = {row["id"]: row["ts"] for row in found}
        assert all(not times[entry_id.decode()] for entry_id in FAR)  # beyond the year 9999
        return
    assert in_order([shown(row) for row in found]) == wanted
    beyond = [row for row in found if row["id"] == "18446744073709551615-1"]
    assert [row["ms"] for row in beyond] == [None]


@pytest.mark.parametrize("form", rest_slow(("parquet", "csv", "json", "orc"), 2))
def test_every_format(run: Run, awkward: Told, tmp_path: Path, form: str) -> None:
    to = tmp_path / "to"
    tables = [part for table in TABLES for part in ("--table", table)]
    done = run("export", awkward.path, "--to", to, "--format", form, "--master", "none", *tables)
    assert (done.code, done.err) == (0, "")
    check(awkward, to, form)
    if form == "parquet":
        for table in TABLES[1:]:
            rows = [row for file in files(to, table) for row in pq.read_table(file).to_pylist()]
            assert len(rows) == len(awkward.tables[table])
            if table != "keys":
                assert_same(rows, awkward.tables[table])


def test_folders(run: Run, awkward: Told, tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = run(
        "export", awkward.path, "--to", to, "--master", "none", "--partition-by", "stream,date"
    )
    assert (done.code, done.err) == (0, "")
    check(awkward, to, "parquet")
    names = {file.relative_to(to).parts[1] for file in files(to, "entries")}
    assert f"stream_key=k-{ODD.hex()}" in names and "stream_key=k-" in names
    assert all(len(name) < 255 for name in names)
    dates = {file.parent.name for file in files(to, "entries")}
    assert {"date=10000-01-01", "date=294247-01-10", "date=1970-01-01"} <= dates


def bad_text(run: Run, told: Told, to: Path, master: str) -> None:
    done = run("export", told.path, "--to", to, "--decode", "utf8", "--master", master)
    assert (done.code, done.out) == (exits.REFUSED, "")
    assert done.err.startswith("tidelog: [TIDELOG_BAD_VALUE] ") and done.err.count("\n") == 1
    null = ("--decode", "utf8", "--on-bad-value", "null", "--json")
    done = run("export", told.path, "--to", f"{to}-null", "--master", master, *null)
    assert done.code == exits.REFUSED and done.err.count("\n") == 1
    assert "a field's name, b'\\xff', is not UTF-8; read the fields with decode=none" in done.err
    some = ("--streams", '["values", "far"]')
    done = run("export", told.path, "--to", f"{to}-some", "--master", master, *null, *some)
    assert json.loads(done.out)["tables"]["entries"] == 1 + len(FAR), done.err


def test_text_that_is_no_utf8(run: Run, awkward: Told, tmp_path: Path) -> None:
    bad_text(run, awkward, tmp_path / "to", "none")


def test_a_damaged_group_beside_sound_ones(run: Run, tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 2)
    try:
        for key in (b"one", b"two"):
            life.run(b"XADD", key, b"1-0", b"f", b"1")
            life.run(b"XGROUP", b"CREATE", key, b"group-of-" + key, b"0")
        path = life.told().path
    finally:
        life.close()
    data = (path / "data.mdb").read_bytes()
    name = b"group-of-two"
    assert name in data
    (path / "data.mdb").write_bytes(data.replace(name, b"gruop-of-two"))
    done = run("export", path, "--to", tmp_path / "groups", "--table", "groups", "--master", "none")
    assert done.code == exits.DAMAGED and done.err.count("\n") == 1
    assert "[TIDELOG_DAMAGED]" in done.err and str(path) in done.err
    one = ("--table", "groups", "--streams", "one", "--master", "none")
    done = run("export", path, "--to", tmp_path / "one", *one)
    assert done.code == exits.OK, done.err
    (file,) = files(tmp_path / "one", "groups")
    assert [row["group"] for row in pq.read_table(file).to_pylist()] == [b"group-of-one"]
