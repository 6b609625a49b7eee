"""Batch reads through a Spark session: options, filters, several snapshots, and errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.spark.histories import Told, lives

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    return [each for _, each in lives(tmp_path_factory.mktemp("lives"), range(6), 40)]


def entry(row: Any) -> str:
    fields = [(bytes(each["name"]), bytes(each["value"])) for each in row["fields"]]
    return repr((row["db"], bytes(row["stream"]), row["id"], fields))


def expected(told: Told) -> Counter[str]:
    return Counter(
        repr((r["db"], r["stream"], r["id"], [(f["name"], f["value"]) for f in r["fields"]]))
        for r in told.tables["entries"]
    )


def test_entries_of_several_snapshots(spark: SparkSession, told: list[Told]) -> None:
    paths = json.dumps([str(each.path) for each in told])
    frame = spark.read.format("tidelog").option("paths", paths).load()
    found: dict[str, Counter[str]] = {str(each.path): Counter() for each in told}
    for row in frame.collect():
        found[row["snapshot"]][entry(row)] += 1
    assert found == {str(each.path): expected(each) for each in told}


def test_each_table_has_a_row_per_thing(spark: SparkSession, told: list[Told]) -> None:
    tables, some = ("streams", "groups", "consumers", "pending", "keys"), told[:3]
    paths = json.dumps([str(each.path) for each in some])
    read = spark.read.format("tidelog").option("paths", paths)
    names = [read.option("table", table).load().select(F.lit(table)) for table in tables]
    found = Counter(name for (name,) in reduce(DataFrame.union, names).collect())
    assert found == {table: sum(len(each.tables[table]) for each in some) for table in tables}


def test_filters_give_the_rows_that_they_keep(spark: SparkSession, told: list[Told]) -> None:
    each = max(told, key=lambda each: len(each.tables["entries"]))
    read = spark.read.format("tidelog")
    rows = read.load(str(each.path)).collect()
    some = rows[len(rows) // 2]
    conditions: list[tuple[Callable[[Any], Any], Callable[[Any], bool]]] = [
        (lambda f: f.stream == some["stream"], lambda r: r["stream"] == some["stream"]),
        (lambda f: f.stream.isin(some["stream"], b"none"), lambda r: r["stream"] == some["stream"]),
        (lambda f: f.db == some["db"], lambda r: r["db"] == some["db"]),
        (lambda f: f.ms >= some["ms"], lambda r: r["ms"] is not None and r["ms"] >= some["ms"]),
        (lambda f: f.ms < some["ms"], lambda r: r["ms"] is not None and r["ms"] < some["ms"]),
        (lambda f: f.id == some["id"], lambda r: r["id"] == some["id"]),
        (
            lambda f: (f.ts <= some["ts"]) & (f.stream != b"s"),
            lambda r: r["ts"] is not None and r["ts"] <= some["ts"] and r["stream"] != b"s",
        ),
    ]
    kept = []
    for number, (condition, _) in enumerate(conditions):
        frame = read.load(str(each.path))
        kept.append(frame.filter(condition(frame)).withColumn("condition", F.lit(number)))
    found: dict[int, Counter[str]] = {number: Counter() for number in range(len(conditions))}
    for row in reduce(DataFrame.union, kept).collect():
        found[row["condition"]][entry(row)] += 1
    for number, (_, test) in enumerate(conditions):
        assert found[number] == Counter(entry(row) for row in rows if test(row)), number


def test_a_filter_in_one_branch_of_a_query_is_not_in_another(
    spark: SparkSession, told: list[Told]
) -> None:
    """Spark keeps one plan of a Python source for each DataFrame, and a filter that is pushed replaces it for all."""
    each = max(told, key=lambda each: len(each.tables["entries"]))
    for pushed in ("true", "false"):
        spark.conf.set(PUSHDOWN, pushed)
        frame = spark.read.format("tidelog").load(str(each.path))
        streams = Counter(row["stream"] for row in each.tables["entries"])
        (one, first), (other, second), *_ = streams.most_common()
        union = frame.filter(frame.stream == one).union(frame.filter(frame.stream == other))
        assert Counter(bytes(row["stream"]) for row in union.collect()) == {one: first, other: second}  # fmt: skip
        assert frame.count() == streams.total()
    spark.conf.unset(PUSHDOWN)


def test_forms_of_the_fields(spark: SparkSession, tmp_path: Path) -> None:
    import tidelog

    with tidelog.open(tmp_path / "orders") as db:
        db.xadd("orders", {"user": "anna", "amount": "12.5", "at": "2026-01-31T12:00:00Z"})
        db.xadd("orders", {"user": 'quo"te\n', "amount": "none"})
        db.snapshot()
    read = spark.read.format("tidelog").option("onBadValue", "null")
    path = str(tmp_path / "orders")
    texts = read.option("fields", "json").load(path).collect()
    assert [json.loads(row["fields"])["user"] for row in texts] == ["anna", 'quo"te\n']
    maps = read.option("fields", "map").option("decode", "utf8").load(path).collect()
    assert maps[0]["fields"]["amount"] == "12.5"
    wide = spark.read.format("tidelog").option("fields", "wide").option("onBadValue", "null")
    rows = wide.schema("id STRING, user STRING, amount DOUBLE, at TIMESTAMP").load(path).collect()
    assert [(row["user"], row["amount"]) for row in rows] == [("anna", 12.5), ('quo"te\n', None)]
    assert rows[0]["at"] is not None and rows[1]["at"] is None


def test_an_error_names_its_code_and_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    import tidelog

    with tidelog.open(tmp_path / "store"):
        pass
    with pytest.raises(Exception, match="TIDELOG_SNAPSHOT.*tidelog snapshot create"):
        spark.read.format("tidelog").load(str(tmp_path / "store")).count()
    with pytest.raises(Exception, match="unknown option streem; did you mean streams"):
        spark.read.format("tidelog").option("streem", "x").load(str(tmp_path)).count()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_200, 50))
def test_two_hundred_random_stores_in_a_few_queries(
    spark: SparkSession, tmp_path: Path, first: int
) -> None:
    told = [each for _, each in lives(tmp_path, range(first, first + 50), 40)]
    paths = json.dumps([str(each.path) for each in told])
    read = spark.read.format("tidelog").option("paths", paths)
    found: dict[str, Counter[str]] = {str(each.path): Counter() for each in told}
    for row in read.load().collect():
        found[row["snapshot"]][entry(row)] += 1
    assert found == {str(each.path): expected(each) for each in told}
    for table in ("streams", "groups", "consumers", "pending", "keys"):
        counts = dict(
            (row["snapshot"], row["count"])
            for row in read.option("table", table).load().groupBy("snapshot").count().collect()
        )
        wanted = {str(each.path): len(each.tables[table]) for each in told if each.tables[table]}
        assert counts == wanted
