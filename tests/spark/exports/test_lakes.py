"""Exports as tables of lakes, read back by the lakes' own libraries."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from tests.spark.histories import Life
from tests.spark.test_tables import assert_same

import tidelog
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports import lakes


def test_delta(tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 4)
    other = Life(tmp_path / "other", 5)
    try:
        life.play(60)
        to = str(tmp_path / "lake")
        for version in (0, 1):
            told = life.told()
            done = lakes.export(str(told.path), "delta", to)
            table = deltalake.DeltaTable(to)
            assert (done.version, table.version(), done.existed) == (version, version, False)
            assert_same(table.to_pyarrow_table().to_pylist(), told.tables["entries"])
            assert lakes.export(str(told.path), "delta", to).existed
            life.play(10)
        with pytest.raises(
            TidelogSparkError, match="holds a table that was not made by exports of table entries"
        ):
            lakes.export(str(other.told().path), "delta", to)
        with pytest.raises(TidelogSparkError, match="must be whole, of exactly one table"):
            lakes.export(str(told.path), "delta", to, tables=("entries", "groups"))
        groups = lakes.export(str(told.path), "delta", str(tmp_path / "groups"), tables=("groups",))
        assert groups.rows == len(told.tables["groups"])
    finally:
        life.close()
        other.close()


def test_iceberg(tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 6)
    try:
        life.play(60)
        to = tmp_path / "lake"
        for version in (1, 2):
            told = life.told()
            done = lakes.export(str(told.path), "iceberg", str(to))
            assert (done.version, done.rows) == (version, len(told.tables["entries"]))
            table = StaticTable.from_metadata(str(to))
            assert table.properties["tidelog.lsn"] == str(done.lsn)
            assert_same(table.scan().to_arrow().to_pylist(), told.tables["entries"])
            assert (to / "metadata/version-hint.text").read_text() == str(version)
            assert lakes.export(str(told.path), "iceberg", str(to)).existed
            life.play(10)
    finally:
        life.close()


def two_snapshots(tmp_path: Path) -> tuple[str, str]:
    with tidelog.open(tmp_path / "two", fsync="no") as db:
        db.xadd("s", {"a": 1})
        older = db.snapshot().path
        db.xadd("s", {"a": 2})
        return str(older), str(db.snapshot().path)


def read_back(kind: str, to: Path) -> pa.Table:
    if kind == "delta":
        return deltalake.DeltaTable(str(to)).to_pyarrow_table()
    return StaticTable.from_metadata(str(to)).scan().to_arrow()


@pytest.mark.parametrize("kind", ("delta", "iceberg"))
def test_an_older_snapshot_and_other_columns(tmp_path: Path, kind: str) -> None:
    older, newer = two_snapshots(tmp_path)
    to = tmp_path / "lake"
    lakes.export(newer, kind, str(to))
    with pytest.raises(TidelogSparkError, match="the snapshot is older: LSN .* --replace-newer"):
        lakes.export(older, kind, str(to))
    assert lakes.export(newer, kind, str(to)).existed
    assert lakes.export(older, kind, str(to), replace_newer=True).rows == 1
    assert len(read_back(kind, to)) == 1
    for columns in ("id,ms", "id,ms,seq,ts", "id"):
        options = {"columns": columns}
        done = lakes.export(newer, kind, str(to), options=options)
        assert not done.existed and lakes.export(newer, kind, str(to), options=options).existed
        found = read_back(kind, to)
        assert {*found.column_names} >= {*columns.split(",")} and "fields" not in found.column_names
        assert ("seq" in found.column_names) == ("seq" in columns)
        assert len(found) == 2 and not any(found[name].null_count for name in found.column_names)
    lakes.export(newer, kind, str(to), options={"columns": "id,fields"})
    if kind == "iceberg":
        with pytest.raises(TidelogSparkError, match="the column fields has another type"):
            lakes.export(newer, kind, str(to), options={"columns": "id,fields", "decode": "utf8"})


def test_a_delta_table_that_others_have_worked_on(tmp_path: Path) -> None:
    older, newer = two_snapshots(tmp_path)
    to = str(tmp_path / "lake")
    for snapshot in (older, newer):
        lakes.export(snapshot, "delta", to)
    table = deltalake.DeltaTable(to)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert lakes.export(newer, "delta", to).existed
    deltalake.DeltaTable(to).delete()  # no rows are left
    done = lakes.export(newer, "delta", to)
    assert (done.existed, done.rows) == (False, 2)
    (tmp_path / "lake/_delta_log/00000000000000000000.json").write_text("{")
    for log in (tmp_path / "lake/_delta_log").glob("*[1-9].json"):
        log.unlink()
    with pytest.raises(TidelogSparkError, match="the delta table cannot be read or written"):
        lakes.export(newer, "delta", to)
