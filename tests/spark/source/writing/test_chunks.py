"""Chunks: whatever becomes of connections and attempts, each row is stored once. On tidelog and on redis-server."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.rounds import some_and_all
from tests.spark.source.writing.conftest import Target, batches
from tests.spark.source.writing.faulty import Fault

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.chunks import Progress, progress_of

ROWS = range(100)
CHUNK = 30  # four transactions behind the one that begins
KEY = "tidelog:spark:job:0"


def write(
    target: Target,
    *,
    attempt: int = 1,
    batch: int = 0,
    job: str = "job",
    run: str = "run",
    patient: bool = True,
) -> int:
    task = target.task(chunkRows=str(CHUNK), retrySeconds="20" if patient else "0")
    task.run = run
    return task.write(batches(ROWS), job=job, partition=0, attempt=attempt, batch=batch).rows


def test_rows_are_stored_in_their_order(target: Target) -> None:
    assert write(target) == 100
    assert target.numbers() == [*ROWS]
    assert target.proxy.transactions == 1 + 4


def test_the_key_says_how_far_a_partition_is(target: Target) -> None:
    write(target, attempt=7, batch=3)
    assert target.client.get(KEY) == b"v1 3 100 0-0 run 7"


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("number", range(5))
def test_a_broken_connection_loses_and_doubles_nothing(
    target: Target, fault: Fault, number: int
) -> None:
    target.proxy.faults = {number: fault}
    assert write(target) == 100
    assert target.numbers() == [*ROWS]
    assert target.proxy.deliver() == ([None] if fault is Fault.LATE else [])
    assert target.numbers() == [*ROWS]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("number", range(5))
def test_a_killed_task_is_continued_by_the_next_attempt(
    target: Target, fault: Fault, number: int
) -> None:
    def then_dead() -> None:
        target.proxy.dead = True

    target.proxy.faults = {number: fault}
    target.proxy.on_exec = lambda n: then_dead() if n == number - 1 else None
    if number == 0:
        target.proxy.dead = True
    with pytest.raises(TidelogSparkError, match="TIDELOG_WRITE_SERVER.*another attempt continues"):
        write(target, patient=False)
    target.proxy.dead = False
    target.proxy.on_exec = lambda n: None
    assert write(target, attempt=2) == 100
    target.proxy.deliver()
    assert target.numbers() == [*ROWS]


def test_a_later_attempt_takes_over_and_the_earlier_one_fails(target: Target) -> None:
    def begin_another(number: int) -> None:
        if number == 2:
            target.proxy.on_exec = lambda n: None
            assert write(target, attempt=2) == 100

    target.proxy.on_exec = begin_another
    with pytest.raises(TidelogSparkError) as raised:
        write(target, attempt=1)
    assert str(raised.value) == (
        f"[TIDELOG_WRITE_SUPERSEDED] {target.proxy.url}, key {KEY}: this attempt writes nothing more, since the key "
        "now names attempt 2 of run run"
    )
    assert target.numbers() == [*ROWS]


def test_an_earlier_attempt_that_begins_late_is_refused(target: Target) -> None:
    write(target, attempt=2)
    with pytest.raises(
        TidelogSparkError, match="SUPERSEDED.*attempt 2 has begun, and this is attempt 1"
    ):
        write(target, attempt=1)
    assert target.numbers() == [*ROWS]


def test_a_query_that_starts_again_counts_its_attempts_anew(target: Target) -> None:
    write(target, attempt=9, batch=1)
    assert write(target, attempt=0, batch=1, run="after a restart".replace(" ", "")) == 100
    assert target.numbers() == [*ROWS]


def test_the_next_batch_begins_with_its_first_row(target: Target) -> None:
    write(target, batch=1)
    write(target, batch=2)
    assert target.numbers() == [*ROWS, *ROWS]


def test_a_task_of_an_earlier_batch_is_refused(target: Target) -> None:
    write(target, batch=2)
    with pytest.raises(
        TidelogSparkError, match="SUPERSEDED.*batch 2 has begun, and this attempt is of batch 1"
    ):
        write(target, batch=1, attempt=2)
    assert target.numbers() == [*ROWS]


def test_jobs_and_partitions_do_not_know_each_other(target: Target) -> None:
    write(target, job="one")
    write(target, job="two")
    target.task().write(batches(ROWS), job="one", partition=1, attempt=0)
    assert target.numbers() == [*ROWS] * 3


@pytest.mark.parametrize("rounds", some_and_all(10, 150))
def test_attempts_at_once_store_each_row_once(target: Target, rounds: int) -> None:
    for round_ in range(rounds):
        target.client.flushall()
        task = target.task(chunkRows="7")
        faults = list(Fault) * 2
        random.shuffle(faults)
        at = target.proxy.transactions
        target.proxy.faults = {at + random.randrange(40): fault for fault in faults}
        outcomes: list[str] = []

        def attempt(number: int) -> None:
            try:
                task.write(batches(ROWS, 10), job="job", partition=0, attempt=number)
            except TidelogSparkError as error:
                outcomes.append(error.code)
            else:
                outcomes.append("stored")

        threads = [threading.Thread(target=attempt, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        target.proxy.deliver()
        assert set(outcomes) <= {"stored", "TIDELOG_WRITE_SUPERSEDED"}, round_
        assert "stored" in outcomes, round_
        assert target.numbers() == [*ROWS], round_


def test_a_progress_that_nobody_wrote_is_refused(target: Target) -> None:
    target.client.set(KEY, "v9 1 2")
    with pytest.raises(
        TidelogSparkError, match=f"TIDELOG_WRITE_PROGRESS. key {KEY} has the value b'v9 1 2'"
    ):
        write(target)


def test_progress_deleted_meanwhile_stops_the_attempt(target: Target) -> None:
    target.proxy.on_exec = lambda n: target.client.delete(KEY) if n == 2 else None
    with pytest.raises(TidelogSparkError, match="SUPERSEDED.*since the key was deleted"):
        write(target)
    assert target.numbers() == [*range(CHUNK)]


def test_a_partition_with_fewer_rows_than_are_stored_is_reported(target: Target) -> None:
    write(target)
    task = target.task()
    with pytest.raises(
        TidelogSparkError, match="WRITE_CHANGED.*100 of its rows are stored, but now"
    ):
        task.write(batches(range(99)), job="job", partition=0, attempt=2)


def test_a_key_of_another_type_is_found_before_anything_is_written(target: Target) -> None:
    target.client.set("text", "x")

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches([1], stream="s")
        yield from batches([2], stream="text")

    with pytest.raises(TidelogSparkError, match="TIDELOG_WRITE_TYPE.*key 'text' is a string"):
        target.task().write(rows(), job="job", partition=0, attempt=1)
    assert target.numbers() == []


def test_a_row_refused_within_a_transaction_stops_all_attempts(target: Target) -> None:
    """The transaction stores the others: an attempt that went on behind them would lose the row."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches([1], stream="s")
        yield from batches([2], stream="text")

    target.proxy.on_exec = lambda n: target.client.set("text", "x") if n == 1 else None
    for attempt in (1, 2):
        with pytest.raises(
            TidelogSparkError, match="WRITE_PARTIAL.*1 of 2 rows were refused: WRONGTYPE"
        ):
            target.task().write(rows(), job="job", partition=0, attempt=attempt)
    assert target.numbers() == [1]


def test_a_refused_row_is_written_down_though_the_connection_breaks(target: Target) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches([1], stream="s")
        yield from batches([2], stream="text")

    target.proxy.on_exec = lambda n: target.client.set("text", "x") if n == 1 else None
    target.proxy.closes_after = 1
    for attempt in (1, 2):
        with pytest.raises(TidelogSparkError, match="WRITE_PARTIAL"):
            target.task().write(rows(), job="job", partition=0, attempt=attempt)


def test_a_refused_transaction_changes_nothing(target: Target) -> None:
    target.client.execute_command("ACL", "SETUSER", "w", "on", ">secret", "~*", "+@all", "-xadd")
    try:
        task = target.task(username="w", password="secret")
        with pytest.raises(TidelogSparkError, match="WRITE_SERVER.*NoPermission.*xadd"):
            task.write(batches(ROWS), job="job", partition=0, attempt=1)
    finally:
        target.client.execute_command("ACL", "DELUSER", "w")
    assert target.numbers() == []
    assert write(target, attempt=2) == 100


def test_no_error_shows_a_password(target: Target) -> None:
    url = target.proxy.url.replace("redis://", "redis://someone:secret@")
    with pytest.raises(TidelogSparkError) as raised:
        target.task(url=url).write(batches(ROWS), job="job", partition=0, attempt=1)
    assert "WRITE_SERVER" in str(raised.value) and "secret" not in str(raised.value)


def test_progress_is_read_as_it_is_written() -> None:
    for progress in (
        Progress(3, 1000, 5 << 64 | 2, "run", 7),
        Progress(0, 0, 0, "run", 0, "1 of 2 rows were refused: WRONGTYPE Operation"),
    ):
        assert progress_of(progress.text(), "key") == progress
