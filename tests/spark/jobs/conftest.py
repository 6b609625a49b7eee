"""The store that most tests of the analyses read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.jobs.made import Told, made

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return made(tmp_path_factory.mktemp("shop") / "orders")


class Tables:
    """Tables of a store's newest snapshot."""

    def __init__(self, spark: SparkSession, path: object) -> None:
        self.spark, self.path = spark, str(path)

    def __call__(self, table: str, **options: str) -> DataFrame:
        read = self.spark.read.format("tidelog").option("table", table)
        return read.options(**options).load(self.path)


@pytest.fixture
def tables(spark: SparkSession, told: Told) -> Tables:
    return Tables(spark, told.path)
