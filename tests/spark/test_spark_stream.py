"""The streaming source through Spark: a query beside a writer, stopped and started again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OPTIONS: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def add(db: tidelog.Store, numbers: range) -> None:
    for n in numbers:
        db.xadd("s", {"n": n})


def run(spark: SparkSession, store: Path, checkpoint: Path, **options: str) -> list[Any]:
    """The rows that a query with Trigger.AvailableNow gives, by batch."""
    batches: list[list[Any]] = []
    query = (
        spark.readStream.format("tidelog")
        .options(path=str(store), **options)
        .load()
        .writeStream.foreachBatch(lambda frame, number: batches.append(frame.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert query.exception() is None
    return batches


def numbers(batches: list[Any]) -> list[list[int]]:
    return [[int(row["fields"][0]["value"]) for row in rows if row["fields"]] for rows in batches]


def test_entries_beside_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    store, at = tmp_path / "s", tmp_path / "at"
    with tidelog.open(store, **OPTIONS) as db:
        add(db, range(5))
        db.snapshot()
        add(db, range(5, 10))
        options = {"startingOffsets": "snapshot", "maxOffsetsPerTrigger": "3"}
        got = numbers(run(spark, store, at, **options))
        assert got == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]
        add(db, range(10, 12))
        assert numbers(run(spark, store, at, **options)) == [[10, 11]]


@pytest.mark.slow  # tests/spark/test_stream.py has it without a JVM
def test_events_and_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    store, at = tmp_path / "s", tmp_path / "at"
    with tidelog.open(store, **OPTIONS, segment_bytes=4096, retain_bytes=0) as db:
        add(db, range(5))
        (rows,) = run(spark, store, at, table="events")
        assert [row["event"] for row in rows] == ["epoch", *["added"] * 5]
        assert rows[-1]["unit_end"] == rows[-1]["lsn"] == 6
        add(db, range(5, 200))
        db.checkpoint()
        with pytest.raises(Exception, match="TIDELOG_LOSS_RELEASED.* LSN 7 to "):
            run(spark, store, at, table="events")
        (rows,) = run(spark, store, at, table="events", failOnDataLoss="false")
        assert [row["event"] for row in rows[:2]] == ["gap", "added"]


def test_a_wrong_option_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="TIDELOG_OPTION.*did you mean startingOffsets"):
        spark.readStream.format("tidelog").options(
            path=str(tmp_path), startingoffset="1", table="events"
        ).load()


@pytest.mark.slow
def test_a_first_batch_that_fails_is_read_again_from_the_same_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark does not store where a query began: it asks again, and a newer snapshot may be there by then."""
    store, at = tmp_path / "s", tmp_path / "at"
    kept: dict[int, list[Any]] = {}

    def keep(frame: Any, number: int) -> None:
        kept[number] = frame.collect()
        if not broken:
            raise RuntimeError("the query ends within its batch")

    def start() -> StreamingQuery:
        rows = spark.readStream.format("tidelog").options(
            path=str(store), startingOffsets="snapshot"
        )
        stream = rows.load().writeStream.foreachBatch(keep).trigger(availableNow=True)
        return stream.option("checkpointLocation", str(at)).start()

    with tidelog.open(store, **OPTIONS) as db:
        add(db, range(5))
        db.snapshot()
        broken: list[str] = []
        with pytest.raises(Exception, match="the query ends within its batch") as told:
            start().awaitTermination(240)
        broken.append(str(told.value))
        add(db, range(5, 8))
        db.snapshot()
        add(db, range(8, 10))
    start().awaitTermination(240)
    assert numbers(list(kept.values())) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
