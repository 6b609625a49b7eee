"""Tables of Spark's catalog: CREATE TABLE ... USING tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.query import OPTIONS, add

import tidelog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A store with a snapshot; its path has signs that mean something in URIs."""
    root = tmp_path / "a store #1"
    with tidelog.open(root, **OPTIONS) as db:
        add(db, range(3))
        db.snapshot()
    yield root
    for name in ("t", "u"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def one(spark: SparkSession, query: str) -> Any:
    return spark.sql(query).collect()[0][0]


def test_a_table_of_a_store(spark: SparkSession, store: Path) -> None:
    spark.sql(
        f"CREATE TABLE t USING tidelog OPTIONS (path '{store}', startId '0-0', decode 'utf8')"
    )
    loaded = spark.read.format("tidelog").options(path=str(store), decode="utf8").load()
    assert spark.table("t").collect() == loaded.collect()
    assert [(f.name, f.dataType) for f in spark.table("t").schema] == [
        (f.name, f.dataType) for f in loaded.schema
    ]
    with tidelog.open(store, **OPTIONS) as db:
        add(db, range(3, 5))
        db.snapshot()
    assert one(spark, "SELECT count(*) FROM t") == 5, "a query sees the newest snapshot"
    spark.sql(f"CREATE TABLE u USING tidelog OPTIONS (`table` 'streams') LOCATION '{store}'")
    assert one(spark, "SELECT length FROM u") == 5


def test_a_table_that_lists_its_columns_is_told_what_to_use(
    spark: SparkSession, store: Path
) -> None:
    spark.sql(f"CREATE TABLE t (id STRING) USING tidelog OPTIONS (path '{store}')")
    with pytest.raises(Exception, match=r"\[TIDELOG_OPTION\] no options came.* TEMPORARY VIEW"):
        spark.sql("SELECT * FROM t").collect()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v (id STRING, n STRING) USING tidelog "
        f"OPTIONS (path '{store}', fields 'wide')"
    )
    assert [row["n"] for row in spark.sql("SELECT n FROM v").collect()] == ["0", "1", "2"]


def test_a_table_with_wrong_options_is_not_made(spark: SparkSession, store: Path) -> None:
    with pytest.raises(Exception, match=r"\[TIDELOG_OPTION\].*did you mean decode"):
        spark.sql(f"CREATE TABLE t USING tidelog OPTIONS (path '{store}', decod 'utf8')")
    assert not spark.catalog.tableExists("t")


@pytest.mark.slow
def test_a_table_of_a_log(spark: SparkSession, store: Path) -> None:
    spark.sql(f"CREATE TABLE t USING tidelog OPTIONS (path '{store}', `table` 'events')")
    found: list[str] = []
    query = (
        spark.readStream.table("t")
        .writeStream.foreachBatch(
            lambda rows, _: found.extend(row["event"] for row in rows.collect())
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert found == ["epoch", "added", "added", "added"]
