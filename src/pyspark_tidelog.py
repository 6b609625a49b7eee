"""The name by which Spark finds the data source `tidelog` without a call of `tidelog.spark.register`.

Spark imports every installed module whose name starts with `pyspark_` and takes its `DefaultSource`. If one of these
imports fails, Spark finds none of the sources. So this module imports only a class that Spark has loaded already, and
without PySpark it is empty. A library that is missing is reported when a program uses the source.
"""

from __future__ import annotations

try:
    from pyspark.sql.datasource import DataSource as _DataSource
# PySpark is missing, broken, or older than 4.0: then nothing looks for sources here
except Exception:
    pass
else:

    class DefaultSource(_DataSource):
        """Stands for `tidelog.spark.source.datasource.TidelogDataSource` until a query uses it."""

        def __new__(cls, options: dict[str, str]) -> _DataSource:  # type: ignore[misc]
            # here: Spark loads this module in every session, also in one without tidelog
            from tidelog.spark.source.datasource import TidelogDataSource

            return TidelogDataSource(options)

        @classmethod
        def name(cls) -> str:
            return "tidelog"
