"""A job that its worker drops without an end is a warning, the first time for a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.jobs.work import drops


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(drops, "_told", set[str]())


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[tidelog.Queue]:
    with tidelog.queue(tmp_path / "store", "jobs", fsync="no") as queue:
        yield queue


def said(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [r for r in caplog.records if "without an end" in r.getMessage()]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_loop_without_a_block_is_told_of_once(
    batch: int, jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put_many(range(6))
    first = jobs.peek(1)[0].id
    for job in jobs.consume("anna", batch=batch, block=0):
        assert job.value is not None
    del job
    until(lambda: said(caplog))
    jobs.store.close()  # the last beat
    (record,) = said(caplog)
    assert (record.levelno, record.name, record.queue) == (logging.WARNING, "tidelog.queue", "jobs")
    assert record.job >= first and "with job:" in record.getMessage()


def test_each_queue_is_told_of(jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture) -> None:
    others = jobs.store.queue("others")
    for queue in (jobs, others, others):
        queue.put("x")
        assert queue.get("anna", block=0) is not None
    jobs.store.close()
    assert sorted(record.queue for record in said(caplog)) == ["jobs", "others"]


def test_a_job_that_has_an_end_or_was_not_seen_is_no_drop(
    jobs: tidelog.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    def taken() -> tidelog.Job:
        jobs.put("x")
        found = jobs.get("anna", block=0)
        assert found is not None
        return found

    with taken():
        pass
    with taken():
        raise LookupError("no such address")
    with pytest.raises(KeyboardInterrupt), taken():
        raise KeyboardInterrupt
    assert taken().release() and taken().ack() and taken().nack("no") and taken().fail("no")
    jobs.put_many(range(10))
    for job in jobs.consume("anna", batch=10, block=0):
        with job:
            break
    del job
    jobs.store.close()
    assert said(caplog) == []


def test_a_task_that_forgets_the_block(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with tidelog.aqueue(tmp_path / "store", "jobs", fsync="no") as jobs:
            await jobs.put("x")
            async for job in jobs.consume(block=0):
                assert job.value == "x"
            del job

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    assert len(said(caplog)) == 1
