"""The groups `due`, whose pending entries are delayed jobs and schedules: no analysis takes them for deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.queued import made

from tidelog.spark.jobs import lag, latency, poison
from tidelog.tools.report.log_events import written
from tidelog.tools.report.plain_log import log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The report without Spark is tried with the same store in `make test`: tests/tools/test_report.py.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("queued") / "store"
    made(path)
    return path


def groups(found: DataFrame) -> set[tuple[bytes, bytes]]:
    return {(bytes(row["stream"]), bytes(row["group"])) for row in found.collect()}


def test_a_snapshot(spark: SparkSession, store: Path) -> None:
    tables = Tables(spark, store)
    pending = tables("pending").cache()
    due = {(b"mails:later", b"due"), (b"only-later:later", b"due"), (b"tidelog:schedules", b"due")}
    assert due < groups(pending)
    waited = latency.pending_latency(pending)
    assert groups(waited) == groups(pending) - due
    assert all((row["latency_ms_p50"] or 0) >= 0 for row in waited.collect())
    assert not due & groups(poison.poison(pending, 2))
    assert groups(poison.poison_by_group(pending, 2)) == groups(poison.poison(pending, 2))
    pending.unpersist()
    assert (
        groups(lag.lag_over_snapshots(tables("groups", snapshot="all")))
        == groups(tables("groups")) - due
    )


def test_a_log(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    events = spark.read.parquet(str(written(log_of(store), tmp_path / "events.parquet")))
    found = latency.delivery_latency(events)
    assert {group for _, group in groups(found)} == {b"workers", b"packers", b"g\xfe"}
    assert all((row["latency_ms_max"] or 0) >= 0 for row in found.collect())
    # a delayed job counts from when it is due; the log has that entry too
    assert all(row["timed"] for row in found.collect() if row["consumer"] == b"ann")
