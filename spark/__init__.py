"""Spark: snapshots and logs as tables of PySpark, and DataFrames written to a served store.

Only the modules in this folder import pyspark and pyarrow (extra `spark`). Importing `tidelog.spark` loads neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to a session. `tidelog.spark.session.session` has done it for its own."""
    from tidelog.spark.source.datasource import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)
