"""The sink in Spark: `df.write` and `df.writeStream` to a served store."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import functions as F
from tests.spark.processes import workers
from tests.spark.source.writing.faulty import Fault, Proxy

import tidelog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Served(NamedTuple):
    db: tidelog.Store
    proxy: Proxy

    def numbers(self, stream: str) -> list[int]:
        return [int(fields[b"n"]) for _, fields in self.db.xrange(stream)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served store behind a proxy."""
    with tidelog.open(tmp_path / "store") as db, tidelog.serve(db, port=0) as serving:
        proxy = Proxy(lambda: socket.create_connection(("127.0.0.1", serving.port)))
        yield Served(db, proxy)
        proxy.close()


def test_a_dataframe_is_appended(spark: SparkSession, served: Served) -> None:
    rows = spark.range(0, 5000, numPartitions=2).select(
        F.col("id").alias("n"), F.format_string("s%d", F.col("id") % 2).alias("stream")
    )
    rows.write.format("tidelog").option("url", served.proxy.url).mode("append").save()
    found = {stream: served.numbers(stream) for stream in ("s0", "s1")}
    assert {stream: sorted(numbers) for stream, numbers in found.items()} == {
        "s0": [*range(0, 5000, 2)],
        "s1": [*range(1, 5000, 2)],
    }
    # A job without a name leaves its keys to late attempts, for a while.
    left = [served.db.pttl(key) for key in served.db.keys("tidelog:spark:*")]
    assert len(left) == 2 and all(0 < each <= 3_600_000 for each in left)


def test_a_named_job_that_runs_again_writes_nothing_twice(
    spark: SparkSession, served: Served
) -> None:
    rows = spark.range(0, 3000, numPartitions=2).select(F.col("id").alias("n"))
    write = rows.write.format("tidelog").mode("append")
    write = write.options(url=served.proxy.url, stream="s", jobId="nightly", retrySeconds=0)
    served.proxy.faults = {4: Fault.AFTER}
    served.proxy.on_exec = lambda number: setattr(served.proxy, "dead", number >= 3)
    with pytest.raises(Exception, match="TIDELOG_WRITE_SERVER"):
        write.save()
    served.proxy.dead = False
    served.proxy.on_exec = lambda number: None
    write.save()
    assert sorted(served.numbers("s")) == [*range(3000)]


def test_a_version_of_an_application_is_written_once(spark: SparkSession, served: Served) -> None:
    def write(version: int, rows: int) -> None:
        numbers = spark.range(rows, numPartitions=2).select(F.col("id").alias("n"))
        one = numbers.write.format("tidelog").mode("append").options(url=served.proxy.url)
        one.options(stream="s", txnAppId="bills", txnVersion=version).save()

    for version, rows in ((7, 100), (7, 100), (7, 5), (8, 10), (6, 20), (8, 10)):
        write(version, rows)
    assert sorted(served.numbers("s")) == sorted([*range(100), *range(10)])
    assert served.db.keys("tidelog*") == [b"tidelog:spark-txn:bills"]
    assert served.db.get("tidelog:spark-txn:bills") == b"v1 8"


def test_a_query_that_starts_again_goes_on_in_its_batch(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "first.csv").write_text("".join(f"{n}\n" for n in range(2500)))

    def start() -> StreamingQuery:
        rows = spark.readStream.schema("n bigint").csv(str(source))
        stream = rows.writeStream.format("tidelog").outputMode("append").trigger(availableNow=True)
        stream = stream.options(url=served.proxy.url, stream="s", retrySeconds=0)
        return stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    served.proxy.on_exec = lambda number: setattr(served.proxy, "dead", number >= 1)
    served.proxy.faults = {2: Fault.AFTER}
    with pytest.raises(Exception, match="TIDELOG_WRITE_SERVER"):
        start().awaitTermination()
    assert len(served.numbers("s")) == 2000  # a task was cut short after two chunks

    served.proxy.dead = False
    served.proxy.on_exec = lambda number: None
    (source / "second.csv").write_text("".join(f"{n}\n" for n in range(2500, 3000)))
    start().awaitTermination()
    assert served.numbers("s") == [*range(3000)]


@pytest.mark.slow
def test_a_query_from_a_log_whose_workers_are_killed(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    """They die within a chunk, those that read the log and those that write."""
    with tidelog.open(tmp_path / "from", fsync="no") as db:
        db.xadd_many("s", [{"n": n} for n in range(2000)])
        for n in range(2000, 2500):
            db.xadd("s", {"n": n})
    kills = [2, 6]  # transactions

    def kill(number: int) -> None:
        if kills and number >= kills[0]:
            del kills[0]
            for pid in workers(os.getpid()):
                os.kill(pid, signal.SIGKILL)

    def start() -> StreamingQuery:
        rows = spark.readStream.format("tidelog").options(path=str(tmp_path / "from"))
        copies = rows.load().select(F.lit("copy").alias("stream"), "fields")
        stream = copies.writeStream.format("tidelog").trigger(availableNow=True)
        stream = stream.options(url=served.proxy.url, chunkRows=300, retrySeconds=0)
        return stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    served.proxy.on_exec = kill
    for _ in range(2):
        with pytest.raises(Exception, match="Writing job failed|Python worker exited"):
            start().awaitTermination(240)
    start().awaitTermination(240)
    assert not kills
    assert served.numbers("copy") == [*range(2500)]


def test_a_mistake_is_named_when_the_write_is_planned(spark: SparkSession, served: Served) -> None:
    write = spark.range(3).write.format("tidelog").option("url", served.proxy.url)
    with pytest.raises(
        Exception, match="TIDELOG_OPTION. option maxlen is not an option of a write"
    ):
        write.option("maxlen", "5").mode("append").save()
