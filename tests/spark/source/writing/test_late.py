"""Attempts that begin when their job has ended, and versions that are written again: nothing is written twice."""

from __future__ import annotations

import pytest
from tests.spark.source.writing.conftest import SCHEMA, Target, batches
from tests.spark.source.writing.faulty import Fault

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing import sink

ROWS = range(100)


def writer(target: Target, **options: str) -> sink.BatchWriter:
    told = {"url": target.proxy.url, "retrySeconds": "0", "chunkRows": "30", **options}
    return sink.writer(told, SCHEMA, False)


def write(
    one: sink.BatchWriter, attempt: int, version: int = 0, partition: int = 0
) -> sink.Written:
    return one.task.write(
        batches(ROWS),
        job=one.job,
        partition=partition,
        attempt=attempt,
        batch=version,
        expires=True,
    )


@pytest.mark.parametrize("end", ("commit", "abort"))
def test_an_attempt_that_begins_after_the_end_of_its_job(target: Target, end: str) -> None:
    one = writer(target)
    done = write(one, 1)
    getattr(one, end)([done])
    assert 0 < target.client.pttl(done.key) <= 3_600_000
    assert write(one, 2).rows == 100
    assert target.numbers() == [*ROWS]


def test_a_version_that_failed_goes_on_and_one_that_is_committed_is_not_written(
    target: Target,
) -> None:
    txn = {"txnAppId": "app", "txnVersion": "3"}
    first = writer(target, **txn)
    target.proxy.faults = {2: Fault.AFTER}
    target.proxy.on_exec = lambda number: setattr(target.proxy, "dead", number >= 1)
    with pytest.raises(TidelogSparkError, match="WRITE_SERVER"):
        write(first, 1, 3)
    first.abort([])
    target.proxy.dead, target.proxy.on_exec = False, lambda number: None

    again = writer(target, **txn)
    done = write(again, 0, 3)
    again.commit([done])
    assert target.numbers() == [*ROWS]
    assert target.client.keys("tidelog*") == [b"tidelog:spark-txn:app"]

    for version in (3, 2):  # a replay, and one of an earlier version
        replay = writer(target, txnAppId="app", txnVersion=str(version))
        for partition in range(2):
            replay.commit([write(replay, 5, version, partition)])
    assert target.client.get("tidelog:spark-txn:app") == b"v1 3"
    assert write(again, 9, 3).rows == 0  # a late attempt
    assert target.numbers() == [*ROWS]
    assert target.client.keys("tidelog*") == [b"tidelog:spark-txn:app"]

    other = writer(target, txnAppId="other", txnVersion="3")
    other.commit([write(other, 1, 3)])
    assert target.numbers() == [*ROWS] * 2


def test_a_commit_between_two_chunks_of_a_late_attempt(target: Target) -> None:
    one = writer(target, txnAppId="app", txnVersion="0")
    done = write(one, 1)
    begun = target.proxy.transactions

    def commit(number: int) -> None:
        if number == begun + 1:  # its first chunk
            target.proxy.on_exec = lambda n: None
            one.commit([done])

    target.client.delete(done.key)  # as if an earlier commit had been cut off behind its first half
    target.proxy.on_exec = commit
    with pytest.raises(TidelogSparkError, match="SUPERSEDED.*version 0 of tidelog:spark-txn:app"):
        write(one, 2)
    assert target.numbers() == [*ROWS]


def test_a_key_of_an_application_that_another_program_wrote(target: Target) -> None:
    target.client.set("tidelog:spark-txn:app", "5")
    one = writer(target, txnAppId="app", txnVersion="3")
    with pytest.raises(TidelogSparkError, match="WRITE_PROGRESS. key tidelog:spark-txn:app has"):
        write(one, 1, 3)


@pytest.mark.parametrize(
    "options, told",
    (
        ({"txnAppId": "a"}, "option txnAppId needs the option txnVersion, too"),
        ({"txnVersion": "1"}, "option txnVersion needs the option txnAppId, too"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "option txnVersion is '-1', but must be a number"),
        ({"txnAppId": "a b", "txnVersion": "1"}, "option txnAppId must not contain white space"),
        ({"txnAppId": "a", "txnVersion": "1", "jobId": "j"}, "cannot be used together with"),
    ),
)
def test_options_that_do_not_fit(options: dict[str, str], told: str) -> None:
    with pytest.raises(TidelogSparkError, match=told):
        sink.writer({"url": "redis://127.0.0.1:1/0", **options}, SCHEMA, False)
    with pytest.raises(TidelogSparkError, match="is only for batch writes"):
        sink.stream_writer({"url": "redis://127.0.0.1:1/0", **options}, SCHEMA, False)
