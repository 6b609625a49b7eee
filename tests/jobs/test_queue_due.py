"""Stats and peek: a job that nobody has and that is due counts as waiting, whether it was delivered before or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing

RETRY_AFTER = 8.0


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: testing.Clock) -> Iterator[Any]:
    path = tmp_path / "s"
    with tidelog.queue(path, "jobs", clock=clock, retry_after=RETRY_AFTER, fsync="no") as found:
        yield found


def shown(queue: Any) -> tuple[int, int, list[Any]]:
    """Waiting, paused, and what peek shows. Reading twice shows the same, and delivers nothing."""
    stats = queue.stats()
    assert stats == queue.stats()
    assert stats.depth == stats.waiting + stats.paused + sum(stats.in_flight.values())
    return stats.waiting, stats.paused, [job.value for job in queue.peek()]


def test_a_released_job_waits(queue: Any) -> None:
    queue.put_many(list("ab"))
    queue.get("anna", block=0).release()
    assert shown(queue) == (2, 0, ["a", "b"])
    assert [job.value for job in queue.peek(1)] == ["a"]
    assert queue.get("ben", block=0).value == "a", "peek shows what comes next"
    assert shown(queue) == (1, 0, ["b"])


def test_what_a_closed_consumer_gave_back_waits(queue: Any) -> None:
    queue.put_many(range(4))
    with queue.consume("anna", 3, block=0) as jobs:
        held = next(jobs)
    assert shown(queue) == (3, 0, [1, 2, 3]) and held.state == "open"


def test_a_failed_job_is_paused_until_its_next_try(queue: Any, clock: testing.Clock) -> None:
    queue.put_many(list("abc"))
    queue.get("anna", block=0).nack("no", delay=5)
    queue.get("anna", block=0).nack("no", delay=3)
    assert shown(queue) == (1, 2, ["c"])
    clock.advance(4)
    assert shown(queue) == (2, 1, ["b", "c"])
    clock.advance(4)
    assert shown(queue) == (3, 0, ["b", "a", "c"]), "in the order in which they became due"
    assert [queue.get("ben", block=0).value for _ in range(3)] == ["b", "a", "c"]
    assert shown(queue) == (0, 0, [])


def test_what_a_plain_client_gave_back_waits(queue: Any) -> None:
    queue.put("a")
    job = queue.get("anna", block=0)
    queue.store.execute_command("XNACK", "jobs", "workers", "SILENT", "IDS", 1, job.id)
    assert shown(queue) == (1, 0, ["a"])
    queue.store.xack("jobs", "workers", job.id)
    assert shown(queue) == (0, 0, [])


def test_beside_the_writer(queue: Any, clock: testing.Clock, tmp_path: Path) -> None:
    queue.put_many(list("abc"))
    queue.get("anna", block=0).nack("no", delay=5)
    job = queue.get("anna", block=0)
    with tidelog.open(tmp_path / "s", read_only=True, clock=clock) as beside:
        seen: Any = beside.queue("jobs")
        assert shown(seen) == (1, 1, ["c"])
        job.release()
        beside.refresh()
        assert shown(seen) == (2, 1, ["b", "c"])
        clock.advance(6)
        waiting, paused, values = shown(seen)
        assert (waiting, paused, sorted(values)) == (3, 0, ["a", "b", "c"])


def test_in_the_next_life(tmp_path: Path, clock: testing.Clock) -> None:
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        queue.put_many(list("abc"))
        queue.get("anna", block=0).release()  # type: ignore[union-attr]
        queue.get("anna", block=0).nack("no", delay=50)  # type: ignore[union-attr]
    with tidelog.queue(tmp_path / "s", "jobs", clock=clock) as queue:
        assert shown(queue) == (2, 1, ["b", "c"])


def test_of_many_paused_jobs_only_those_due_are_counted(queue: Any, clock: testing.Clock) -> None:
    total = 300
    queue.put_many(range(total))
    for job in list(queue.consume("anna", block=0)):
        job.nack("no", delay=1 + job.value * 7919 % total)
    for seconds in (0, 1, total // 3, total // 3):
        clock.advance(seconds)
        stats = queue.stats()
        due = len(queue.peek(total))
        assert (stats.waiting, stats.paused) == (due, total - due)
    assert due == 1 + 2 * (total // 3)


def test_with_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "jobs") as queue:
            await queue.put("a")
            job = await queue.get("anna", block=0)
            assert job is not None and await job.release()
            stats = await queue.stats()
            assert (stats.waiting, stats.paused) == (1, 0)
            assert [job.value for job in await queue.peek()] == ["a"]

    asyncio.run(main())
