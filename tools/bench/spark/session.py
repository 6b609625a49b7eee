"""A process with one Spark session, which the bench asks for what it measures. It is run by processes/fresh.py."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tidelog.spark
from tidelog.spark.session import session
from tidelog.tools.bench.spark import sources, tree

HEARD_S_MAX = 120.0
SENT = "CAST(fields[0].value AS STRING) AS sent"


class Running:
    """The session. It must not run beside another one in the same process."""

    def __init__(self, master: str) -> None:
        self._spark: SparkSession
        self._query: Any = None
        self._spent: list[float] = []
        self._heard = threading.Condition()
        self._begin(master)

    def _begin(self, master: str) -> None:
        self._spark = session(master)
        for source in sources.SOURCES:
            self._spark.dataSource.register(source)

    def restart(self, master: str) -> None:
        """End the session with its workers, and start another one in the same JVM, which has compiled already."""
        self._spark.stop()
        self._begin(master)

    # --- batch reads

    def noop(self, source: str, options: dict[str, str]) -> list[float]:
        """(seconds, seconds of processor time) to read everything and drop it."""
        frame = self._frame(source, options)
        used, start = tree.cpu_s(os.getpid()), time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return [time.perf_counter() - start, tree.cpu_s(os.getpid()) - used]

    def count(self, options: dict[str, str]) -> list[float]:
        """(entries, seconds) of a count, the planning included."""
        start = time.perf_counter()
        found = self._frame("tidelog", options).count()
        return [found, time.perf_counter() - start]

    def _frame(self, source: str, options: dict[str, str]) -> DataFrame:
        return self._spark.read.format(source).options(**options).load()

    def workers_peak(self) -> list[int]:
        """The largest resident set of each Python worker of this session, in bytes."""
        return [tree.peak_bytes(pid) for pid in tree.workers(os.getpid())]

    # --- exports

    def export(self, path: str, to: str, since: str | None) -> float:
        """Seconds of an export."""
        start = time.perf_counter()
        tidelog.spark.export(self._spark, path, to, since=since)
        return time.perf_counter() - start

    def parquet(self, options: dict[str, str], to: str) -> float:
        """Seconds in which Spark itself writes the same rows as Parquet."""
        start = time.perf_counter()
        self._frame("tidelog", options).write.option("compression", "zstd").parquet(to)
        return time.perf_counter() - start

    # --- streams

    def backlog(self, path: str, checkpoint: str) -> list[float]:
        """(entries, seconds) of a query that reads all of a store's log and drops it, without its start."""
        query = (
            self._log(path)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        spent = sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress)
        return [rows, spent / 1000]

    def listen(self, path: str, checkpoint: str) -> None:
        """Start a query that notes how old each entry is when foreachBatch has it; its field `sent` says when it was
        added.
        """

        def note(batch: DataFrame, number: int) -> None:
            sent = [row["sent"] for row in batch.selectExpr(SENT).collect()]
            now = time.monotonic_ns()
            with self._heard:
                self._spent += [(now - int(each)) / 1e9 for each in sent]
                self._heard.notify_all()

        self._spent.clear()
        self._query = (
            self._log(path)
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", checkpoint)
            .start()
        )

    def heard(self, count: int) -> list[float]:
        """Wait until the query has so many entries. Their ages in seconds."""
        with self._heard:
            if not self._heard.wait_for(lambda: len(self._spent) >= count, HEARD_S_MAX):
                raise RuntimeError(f"the query got {len(self._spent)} entries of {count}")
            return list(self._spent)

    def own_logs(self) -> list[float]:
        """Seconds in each batch of the query that Spark needed for its own two logs."""
        spent = [each["durationMs"] for each in self._query.recentProgress if each["numInputRows"]]
        return [(each.get("walCommit", 0) + each.get("commitOffsets", 0)) / 1000 for each in spent]

    def idle(self, seconds: float) -> float:
        """Milliseconds of processor time in a second of doing nothing, with or without a query."""
        # By process: a worker that ends meanwhile takes all that it has ever used out of the sum.
        before, start = tree.each_cpu_s(os.getpid()), time.monotonic()
        time.sleep(seconds)
        after = tree.each_cpu_s(os.getpid())
        used = sum(spent - before.get(pid, 0.0) for pid, spent in after.items())
        return used * 1000 / (time.monotonic() - start)

    def end(self) -> None:
        """End the query."""
        self._query.stop()

    def _log(self, path: str) -> DataFrame:
        return self._spark.readStream.format("tidelog").option("path", path).load()

    # --- writing

    def write(self, url: str, stream: str, rows: int) -> float:
        """Seconds in which one task appends rows of three columns to a stream of a server."""
        number = F.col("id")
        columns = (
            F.lpad(number.cast("string"), 6, "0").alias("user"),
            F.md5(number.cast("string")).alias("payload"),
            (number * 104729).alias("tag"),
        )
        frame = self._spark.range(rows, numPartitions=1).select(*columns)
        start = time.perf_counter()
        frame.write.format("tidelog").options(url=url, stream=stream).mode("append").save()
        return time.perf_counter() - start

    def close(self) -> None:
        self._spark.stop()
