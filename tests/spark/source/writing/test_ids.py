"""Rows with IDs: what is stored is known by its ID, whatever the order of rows with equal IDs. On both servers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.rounds import some_and_all
from tests.spark.source.writing.conftest import Target
from tests.spark.source.writing.faulty import Fault
from tests.spark.source.writing.schemas import schema

from tidelog.spark.errors import TidelogSparkError

SCHEMA = schema("stream string, id string, n bigint")

Rows = list[tuple[str, str, int]]


def rows(*, count: int = 60, streams: int = 3) -> Rows:
    """Each ID is in all streams."""
    return [(f"s{n % streams}", f"{1 + n // streams}-0", n) for n in range(count)]


def batches(given: Rows, size: int = 17) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(given), size):
        streams, ids, numbers = zip(*given[first : first + size], strict=True)
        yield pa.record_batch(
            [pa.array(streams), pa.array(ids), pa.array(numbers)], SCHEMA.fieldNames()
        )


def write(
    target: Target,
    given: Rows,
    *,
    patient: bool = True,
    attempt: int = 1,
    job: str = "job",
    partition: int = 0,
) -> int:
    task = target.task(SCHEMA, idColumn="id", chunkRows="10", retrySeconds="20" if patient else "0")
    task.run = "run"
    return task.write(batches(given), job=job, partition=partition, attempt=attempt).rows


def stored(target: Target) -> Rows:
    found: Rows = []
    for stream in ("s0", "s1", "s2"):
        entries: Any = target.client.xrange(stream)
        found += [(stream, id.decode(), int(fields[b"n"])) for id, fields in entries]
    return found


def shuffled(given: Rows) -> Rows:
    """The same rows in another order that is theirs too: rows with equal IDs change places."""
    return sorted(random.sample(given, len(given)), key=lambda row: int(row[1].split("-")[0]))


def test_entries_get_the_ids_of_their_rows(target: Target) -> None:
    write(target, rows())
    assert stored(target) == sorted(rows(), key=lambda row: row[0])


@pytest.mark.parametrize("rounds", some_and_all(10, 150))
def test_a_retry_may_bring_equal_ids_in_another_order(target: Target, rounds: int) -> None:
    for round_ in range(rounds):
        target.client.flushall()
        at = target.proxy.transactions
        stop = at + random.randrange(6)
        target.proxy.faults = {stop: random.choice(list(Fault))}

        def die(number: int, stop: int = stop) -> None:
            target.proxy.dead = number >= stop - 1

        target.proxy.on_exec = die
        try:
            write(target, shuffled(rows()), patient=False)
        except TidelogSparkError as error:
            assert error.code == "TIDELOG_WRITE_SERVER", error
        target.proxy.dead, target.proxy.faults = False, {}
        target.proxy.on_exec = lambda n: None
        done = stored(target)[::2]
        for stream, id, _ in done:  # a consumer is through with it
            target.client.xdel(stream, id)
        write(target, shuffled(rows()), attempt=2)
        target.proxy.deliver()
        assert sorted(stored(target)) == sorted({*rows()} - {*done}), round_


def test_entries_that_are_there_are_not_written_again(target: Target) -> None:
    write(target, rows(count=30))
    assert write(target, rows(count=60), job="another", partition=5) == 60
    assert stored(target) == sorted(rows(), key=lambda row: row[0])


def test_an_id_below_the_last_one_of_its_stream_is_an_error(target: Target) -> None:
    target.client.xadd("s1", {"n": 1}, id="15-0")
    with pytest.raises(TidelogSparkError) as raised:
        write(target, rows())
    assert str(raised.value) == (
        f"[TIDELOG_WRITE_ID] {target.proxy.url}: stream 's1' has no entry 1-0 and cannot get one, because its last ID "
        "is 15-0; with an ID column, let only one writer add to a stream, from one partition and in the order of the "
        "IDs"
    )
    assert target.client.get("tidelog:spark:job:0") == b"v1 0 0 0-0 run 1"


def test_another_writer_between_the_look_and_the_transaction(target: Target) -> None:
    """The look is repeated: it finds the entry with the row's ID."""

    def add(number: int) -> None:
        if number == 1:
            target.client.xadd("s0", {"n": 0}, id="1-0")

    target.proxy.on_exec = add
    write(target, rows())
    assert stored(target) == sorted(rows(), key=lambda row: row[0])


# fmt: off
@pytest.mark.parametrize("given", [
    [("a", "2-0", 1), ("b", "1-0", 2)],
    [("a", "2-0", 1), ("b", "2-0", 2), ("a", "2-0", 3)],
])
# fmt: on
def test_rows_out_of_order_are_an_error(target: Target, given: Rows) -> None:
    with pytest.raises(TidelogSparkError, match="WRITE_ORDER. row .* of partition 0: its ID is not above"):
        write(target, given)
    assert not target.client.exists("a")


def test_equal_ids_share_a_transaction(target: Target) -> None:
    """Otherwise a retry that goes on behind an ID would pass over the rest of its rows."""
    write(target, rows(count=60, streams=15))
    assert target.proxy.transactions == 1 + 4


def test_the_id_column_may_not_come_and_go_within_a_batch(target: Target) -> None:
    plain = schema("stream string, n bigint")
    few = pa.record_batch([pa.array(["s"]), pa.array([1])], plain.fieldNames())
    write(target, rows())
    with pytest.raises(TidelogSparkError, match="WRITE_CHANGED.*the earlier attempt had an ID column"):
        target.task(plain).write(iter([few]), job="job", partition=0, attempt=2)
    target.task(plain).write(iter([few]), job="plain", partition=0, attempt=2)
    with pytest.raises(TidelogSparkError, match="WRITE_CHANGED.*the earlier attempt had no ID column"):
        write(target, rows(), job="plain")
