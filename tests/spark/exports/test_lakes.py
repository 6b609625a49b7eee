"""Exports as tables of lakes, read back by the lakes' own libraries."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from pyiceberg.table import StaticTable
from tests.spark.histories import Life
from tests.spark.test_tables import assert_same

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
