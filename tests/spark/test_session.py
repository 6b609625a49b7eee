"""The session: it starts, it runs Python, and it is set up as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(first) for first in (0, 10)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(range(partition.value, partition.value + 10))], ["n"])


class Twenty(DataSource):
    """The numbers below 20, from two tasks."""

    @classmethod
    def name(cls) -> str:
        return "twenty"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: object) -> DataSourceReader:
        return Reader()


def test_a_data_source_in_python_runs(spark: SparkSession) -> None:
    spark.dataSource.register(Twenty)
    assert sorted(row.n for row in spark.read.format("twenty").load().collect()) == [*range(20)]


def test_times_are_shown_in_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT CAST(timestamp_millis(0) AS string) AS epoch").head()
    assert row is not None and row.epoch == "1970-01-01 00:00:00"


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    assert session("local[2]") is spark


def test_only_errors_are_logged(spark: SparkSession) -> None:
    assert spark._jvm is not None
    levels = spark._jvm.org.apache.logging.log4j.LogManager
    assert levels.getLogger("org.apache.spark.SparkContext").getLevel().toString() == "ERROR"


def test_a_setting_that_is_none_of_sparks_is_refused() -> None:
    with pytest.raises(
        ValueError, match="shuffle_partitions: the name of a Spark setting must begin"
    ):
        session(shuffle_partitions=8)
