"""Exports of random stores: every table says what the store's own commands say."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from tests.spark.histories import Told, lives
from tests.spark.test_tables import assert_same, ms

import tidelog
from tidelog import testing
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.export import Exported, export
from tidelog.spark.exports.run import in_processes
from tidelog.spark.exports.task import run

TABLES = ("entries", "streams", "groups", "consumers", "pending", "keys")


def in_this_process(tasks: Any, advance: Any) -> Any:
    return [run(task) for task in tasks]


def exported(told: Told, to: Path, **more: Any) -> Exported:
    return export(str(told.path), str(to), runner=in_this_process, **more)


def rows(done: Exported, table: str) -> list[dict[str, Any]]:
    files = [Path(done.path) / file.name for file in done.seal.of_table(table)]
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return next(lives(tmp_path_factory.mktemp("life"), range(7, 8), 120))[1]


def test_all_tables(tmp_path: Path) -> None:
    for seed, told in lives(tmp_path, range(3), 80):
        print("seed", seed)
        done = exported(told, tmp_path / f"to{seed}", tables=TABLES)
        for table in TABLES:
            expected = told.tables[table]
            found = rows(done, table)
            assert len(found) == len(expected) == done.seal.tables[table]
            if table != "keys":
                assert_same(found, expected)
        entries = rows(done, "entries")
        for file in done.seal.of_table("entries"):
            part = pq.read_table(tmp_path / f"to{seed}" / file.name).to_pylist()
            order = [(row["stream"], row["db"], row["id_key"]) for row in part]
            assert order == sorted(order)
        assert {"stream_number", "id_key", "fields"} <= entries[0].keys()


def test_every_format_holds_the_same(told: Told, tmp_path: Path) -> None:
    count = len(told.tables["entries"])
    for format in ("parquet", "csv", "json", "orc"):
        done = exported(told, tmp_path / format, format=format)
        (file,) = done.seal.of_table("entries")
        path = tmp_path / format / file.name
        if format == "orc":
            expected = [_without(row, "id_key") for row in told.tables["entries"]]
            assert_same(orc.read_table(path).to_pylist(), expected)
        elif format == "json":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert [line["id"] for line in lines] == [row["id"] for row in _sorted(told)]
        elif format == "csv":
            (found,) = duckdb(f"select count(*) from read_csv('{path}', all_varchar=true)")
            assert found == [count]
        assert done.seal.tables["entries"] == count


def duckdb(query: str) -> list[list[Any]]:
    """Rows of a query. In a process of its own, since DuckDB complains of a frozen collector when it ends."""
    code = "import sys, json, duckdb; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall()))"
    done = subprocess.run([sys.executable, "-c", code, query], capture_output=True, check=True)
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def _sorted(told: Told) -> list[dict[str, Any]]:
    return sorted(told.tables["entries"], key=lambda row: (row["stream"], row["db"], row["id_key"]))


def test_parquet_is_read_by_others(told: Told, tmp_path: Path) -> None:
    done = exported(told, tmp_path / "to")
    glob = f"{done.path}/entries/*.parquet"
    found = duckdb(f"select id from '{glob}'")
    assert sorted(each for (each,) in found) == sorted(row["id"] for row in told.tables["entries"])
    assert ds.dataset(f"{done.path}/entries").count_rows() == len(told.tables["entries"])
    file = pq.ParquetFile(f"{done.path}/{done.seal.of_table('entries')[0].name}")
    group = file.metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert columns["id_key"].statistics.has_min_max
    assert "RLE_DICTIONARY" in columns["stream"].encodings
    assert "RLE_DICTIONARY" in columns["fields.list.element.name"].encodings
    assert "RLE_DICTIONARY" not in columns["fields.list.element.value"].encodings
    assert len(group.sorting_columns) == 2


def test_folders_by_stream_and_date(told: Told, tmp_path: Path) -> None:
    done = exported(told, tmp_path / "to", partition_by=("stream", "date"))
    assert_same(rows(done, "entries"), told.tables["entries"])
    for file in done.seal.of_table("entries"):
        stream, date = Path(file.name).parts[1:3]
        part = pq.read_table(tmp_path / "to" / file.name, partitioning=None).to_pylist()
        assert {f"stream_key=k-{row['stream'].hex()}" for row in part} == {stream}
        dates = {row["ts"].date().isoformat() for row in part if row["ts"] is not None}
        assert {f"date={each}" for each in dates} <= {date}


@pytest.mark.parametrize("by", ["stream", "date", "stream,date", "date,stream"])
def test_a_folder_for_each_of_many_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A key in two databases, entries of several days, and more streams than a task may have."""
    monkeypatch.setattr("tidelog.spark.exports.plan.FOLDERS", 3)
    clock = testing.Clock(datetime(2026, 1, 1, 20, tzinfo=UTC))
    with tidelog.open(tmp_path / "store", fsync="no", clock=clock) as db:
        for turn in range(4):
            for name in "abcdefgh":
                db.xadd(name, {"turn": str(turn)})
            clock.advance(3600 * 7)
        db.execute_command("COPY", "c", "c", "DB", "1")
        db.snapshot()
    told = export(str(tmp_path / "store"), str(tmp_path / "flat"), runner=in_this_process)
    done = export(
        str(tmp_path / "store"),
        str(tmp_path / "to"),
        partition_by=by.split(","),
        runner=in_this_process,
    )
    assert_same(rows(done, "entries"), list(map(ms, rows(told, "entries"))))
    days = {f"date={day}" for day in ("2026-01-01", "2026-01-02")}
    streams = {f"stream_key=k-{name.encode().hex()}" for name in "abcdefgh"}
    kinds = {"stream": streams, "date": days}
    folders = {Path(file.name).parent.parts[1:] for file in done.seal.of_table("entries")}
    assert folders == set(product(*(kinds[each] for each in by.split(","))))
    parts = {Path(file.name).stem for file in done.seal.of_table("entries")}
    assert len(parts) == (1 if by == "date" else 3)
    for file in done.seal.of_table("entries"):
        found = pq.read_table(Path(done.path) / file.name, partitioning=None).to_pylist()
        order = [(row["stream"], row["db"], row["id_key"]) for row in found]
        assert order == sorted(order)


def test_filters(told: Told, tmp_path: Path) -> None:
    name = told.tables["entries"][0]["stream"]
    options = {"streamsPattern": name.decode(), "columns": "id,fields"}
    done = exported(told, tmp_path / "to", options=options)
    expected = [
        {"id": row["id"], "fields": row["fields"]}
        for row in told.tables["entries"]
        if row["stream"] == name
    ]
    assert_same(rows(done, "entries"), expected)
    assert list(rows(done, "entries")[0]) == ["id", "fields", "stream_number", "id_key"]


def test_the_same_again_writes_nothing(told: Told, tmp_path: Path) -> None:
    first = exported(told, tmp_path / "to", tables=("entries", "groups"))
    again = exported(told, tmp_path / "to", tables=("entries", "groups"))
    assert again.existed and again.seal == first.seal
    names = {path.name for path in (tmp_path / "to").rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith("part-")} == {"_manifest.json", "_index.parquet"}  # fmt: skip


# fmt: off
@pytest.mark.parametrize(("more", "message"), [
    ({"tables": ("entrys",)}, "there is no table entrys"),
    ({"format": "xml"}, "format 'xml' is not one of parquet, csv, json, orc"),
    ({"partition_by": ("group",)}, "not by group"),
    ({"options": {"colour": "red"}}, "the option colour is not one of"),
    ({"options": {"fields": "wide"}}, "fields=wide needs a schema, which"),
    ({"options": {"db": "x"}}, "a number from 0"),
])
# fmt: on
def test_wrong_calls(told: Told, tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(TidelogSparkError) as failed:
        exported(told, tmp_path / "to", **more)
    assert message in str(failed.value) and failed.value.code == "TIDELOG_OPTION"
    assert not (tmp_path / "to").exists()


def test_a_directory_that_holds_something_else(told: Told, tmp_path: Path) -> None:
    exported(told, tmp_path / "to")
    with pytest.raises(TidelogSparkError, match="holds another export, of LSN"):
        exported(told, tmp_path / "to", tables=("groups",))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(TidelogSparkError, match="is not empty: it contains letter.txt"):
        exported(told, tmp_path / "mine")
    assert (tmp_path / "mine/letter.txt").read_text() == "dear"
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/_plan.json").write_text('{"plan": "another", "what": "LSN 3 of x"}')
    with pytest.raises(TidelogSparkError, match="unfinished export of other content .LSN 3 of x."):
        exported(told, tmp_path / "begun")


def test_a_damaged_snapshot_is_told(told: Told, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("manifest.json", "data.mdb"):
        (copy / name).write_bytes((told.path / name).read_bytes())
    data = bytearray((copy / "data.mdb").read_bytes())
    middle = data.index(b"\x84\xa6format") if b"\x84\xa6format" in data else len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    (copy / "data.mdb").write_bytes(data)
    with pytest.raises(TidelogSparkError, match="TIDELOG_(DAMAGED|SNAPSHOT)"):
        export(str(copy), str(tmp_path / "to"), tables=TABLES, runner=in_this_process)


def test_in_processes(told: Told, tmp_path: Path) -> None:
    runner = in_processes(2)
    done = export(str(told.path), str(tmp_path / "to"), runner=runner, tables=("entries", "groups"))
    assert_same(rows(done, "entries"), told.tables["entries"])
