"""Spark: snapshots read and exported, the log as a stream, and writing, each beside other ways to do the same."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.processes.fresh import Fresh


def rows(bench: Bench) -> Iterator[Figure]:
    try:
        # here: pyspark may be missing
        from tidelog.tools.bench.spark import (
            bucket,
            exporting,
            reading,
            streaming,
            workers,
            writing,
        )
        from tidelog.tools.bench.spark.session import Running
        from tidelog.tools.bench.spark.setting import Setting
    except ImportError as error:
        bench.missing["spark"] = str(error)
        return
    with Fresh(Running, "local[2]") as spark:
        setting = Setting(bench, spark)
        # `exporting` changes the store that `reading` and `workers` read, so it comes last of them.
        for family in (reading, bucket, workers, exporting, streaming, writing):
            yield from family.rows(setting)
