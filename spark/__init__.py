"""Spark: snapshots and logs as tables of PySpark, and DataFrames written to a served store.

Only the modules in this folder import pyspark and pyarrow (extra `spark`). Importing `tidelog.spark` loads neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.exports.export import Exported

__all__ = ["combine", "export", "pin", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to a session. A session from `tidelog.spark.session.session` knows it already."""
    # here: it loads pyspark and pyarrow
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
    # here: it loads pyspark and pyarrow
    from tidelog.snapshot.place import place_of
    from tidelog.spark.source.batch.snapshots import resolve, telling

    with ExitStack() as held:
        (found,) = resolve((fspath(path),), snapshot)
        with telling(found):
            held.enter_context(place_of(found).hold())
        yield found


def export(
    spark: SparkSession,
    snapshot: str | PathLike[str],
    to: str | PathLike[str],
    *,
    tables: Sequence[str] = ("entries",),
    since: str | PathLike[str] | None = None,
    options: Mapping[str, str] = {},
    format: str = "parquet",
    partition_by: Sequence[str] = (),
) -> Exported:
    """Write tables of a snapshot as files. Spark runs the tasks, and no row passes through the JVM.

    Args:
        spark: The session.
        snapshot: A snapshot or a store; a path or a URL.
        to: A directory or URL: empty, or with the same export unfinished, which then goes on.
        tables: Names of tables.
        since: An earlier export of the same store: write only what was added and removed since.
        options: As of the data source: `db`, `streams`, `streamsPattern`, `columns`, `fields` and so on.
        format: "parquet", "csv", "json" or "orc".
        partition_by: Any of "stream" and "date": folders of `entries`.

    Raises:
        TidelogSparkError: The text says what is wrong, where, and what to do.
    """
    # here: it loads pyspark and pyarrow
    from tidelog.spark.exports import export as exports
    from tidelog.spark.exports.run import in_spark

    return exports.export(
        fspath(snapshot),
        fspath(to),
        tables=tables,
        since=None if since is None else fspath(since),
        options=options,
        format=format,
        partition_by=partition_by,
        runner=in_spark(spark),
    )


def combine(exports: Sequence[str | PathLike[str]], spark: SparkSession | None = None) -> DataFrame:
    """The entries of a snapshot from a whole export and the incremental ones after it.

    Args:
        exports: Paths or URLs, in the order in which they were made.
        spark: The session; by default the active one.

    Raises:
        TidelogSparkError: An export is missing or damaged, or does not continue the one before it.
    """
    import json

    from pyspark.sql import SparkSession

    # here: it loads pyspark and pyarrow
    from tidelog.spark.errors import TidelogSparkError
    from tidelog.spark.exports.combine import chain
    from tidelog.spark.exports.combined import EXPORTS, NAME, CombinedDataSource

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise TidelogSparkError(
            "TIDELOG_EXPORT", "there is no active Spark session; pass one as the argument spark"
        )
    session.dataSource.register(CombinedDataSource)
    paths = [fspath(each) for each in exports]
    # Check now: an error raised while Spark plans the read would be shown inside a text of Spark's own.
    chain(paths)
    return session.read.format(NAME).option(EXPORTS, json.dumps(paths)).load()
