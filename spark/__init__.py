"""Spark: snapshots and logs as tables of PySpark, and DataFrames written to a served store.

Only the modules in this folder import pyspark and pyarrow (extra `spark`). Importing `tidelog.spark` loads neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pin", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to a session. A session from `tidelog.spark.session.session` knows it already."""
    from tidelog.spark.source.datasource import TidelogDataSource

    spark.dataSource.register(TidelogDataSource)


@contextmanager
def pin(path: str | PathLike[str], snapshot: str = "latest") -> Iterator[str]:
    """Keep a snapshot from being pruned within the context, also while nothing reads it.

    Args:
        path: A snapshot, or a store.
        snapshot: Which snapshot of a store: "latest", "now" (make one) or an LSN.

    Yields:
        The path of the snapshot.

    Raises:
        TidelogSparkError: It does not exist, or was pruned.
    """
    from tidelog.snapshot.place import place_of
    from tidelog.spark.source.snapshots import resolve, telling

    with ExitStack() as held:
        (found,) = resolve((fspath(path),), snapshot)
        with telling(found):
            held.enter_context(place_of(found).hold())
        yield found
