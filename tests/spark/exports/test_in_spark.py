"""Exports that Spark's workers write, and their combination as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.exports.test_awkward import awkward, bad_text, check
from tests.spark.exports.test_chain import change
from tests.spark.exports.test_export import rows
from tests.spark.histories import Life, Told
from tests.spark.test_tables import assert_same
from tests.tools.conftest import Run, run

import tidelog.spark
from tidelog.spark.errors import TidelogSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["awkward", "run"]


@pytest.mark.slow
def test_a_chain_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 11)
    try:
        life.play(60)
        base = life.told()
        whole = tidelog.spark.export(spark, base.path, tmp_path / "base", tables=("entries", "groups"))  # fmt: skip
        assert_same(rows(whole, "entries"), base.tables["entries"])
        assert_same(rows(whole, "groups"), base.tables["groups"])
        for _ in range(4):
            change(life)
        newer = life.told()
    finally:
        life.close()
    tidelog.spark.export(spark, newer.path, tmp_path / "newer", since=tmp_path / "base")
    frame = tidelog.spark.combine([tmp_path / "base", tmp_path / "newer"])
    found = [row.asDict(recursive=True) for row in frame.drop("ts").collect()]
    for row in found:
        for name in ("stream", "id_key"):
            row[name] = bytes(row[name])
        row["fields"] = [{name: bytes(part) for name, part in each.items()} for each in row["fields"]]  # fmt: skip
    assert_same(found, newer.tables["entries"])


def test_the_error_of_a_worker_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(tmp_path / "store", 12)
    try:
        life.play(30)
        life.run(b"XADD", b"s", b"*", b"\xff", b"\xfe")
        told = life.told()
    finally:
        life.close()
    with pytest.raises(TidelogSparkError) as failed:
        tidelog.spark.export(spark, told.path, tmp_path / "to", options={"decode": "utf8"})
    assert failed.value.code == "TIDELOG_BAD_VALUE"
    assert "Traceback" not in str(failed.value) and "\n" not in str(failed.value)


def test_an_awkward_store(spark: SparkSession, run: Run, awkward: Told, tmp_path: Path) -> None:
    to = tmp_path / "to"
    done = run("export", awkward.path, "--to", to, "--master", "local[2]", "--table", "entries")
    assert (done.code, done.err) == (0, "")
    check(awkward, to, "parquet")


def test_text_that_is_no_utf8(spark: SparkSession, run: Run, awkward: Told, tmp_path: Path) -> None:
    bad_text(run, awkward, tmp_path / "to", "local[2]")
