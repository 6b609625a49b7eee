"""A run that ends after a number of jobs, or with much memory, so that another process takes its place. All faces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client import isolated
from tests.client.conftest import KINDS, opened

import tidelog
from tidelog.api.queue.running.plan import Recycled
from tidelog.disk.process import resident_bytes


@pytest.fixture(params=KINDS)
def mails(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue through each face, called as if it were for threads."""
    with opened(request.param, tmp_path / "s") as store:
        yield store.queue("mails")


def run(mails: Any, handler: Any, **given: Any) -> Any:
    """A run of threads or of tasks."""
    if not hasattr(mails, "arun"):
        return mails.run(handler, **given)

    async def handle(job: Any) -> None:
        await asyncio.sleep(0)
        handler(job)

    return mails.arun(handle, **given)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_run_ends_after_so_many_jobs(mails: Any, batch: int) -> None:
    mails.put_many(range(10))
    done: list[int] = []
    ends: list[int] = []
    while len(done) < 10:
        left = run(
            *(mails, lambda job: done.append(job.value)),
            **{"workers": 1, "max_jobs": 3, "batch": batch, "block": 0},
        )
        assert left == 0
        ends.append(len(done))
        if not isinstance(left, Recycled):
            break
        # Those that were fetched with them went back, and nobody saw them.
        assert [each.deliveries for each in mails.peek() if each.value in done] == []
    assert done == list(range(10)) and ends == [3, 6, 9, 10]
    assert len(mails) == 0


def test_jobs_that_fail_count_too_and_others_end(mails: Any) -> None:
    mails.put_many(range(20))
    seen: list[int] = []

    def handle(job: Any) -> None:
        seen.append(job.value)
        raise tidelog.GiveUp("no")

    assert isinstance(run(mails, handle, workers=3, max_jobs=5), Recycled)
    assert 5 <= len(seen) <= 7  # what three workers had begun
    assert len(mails) == 20 - len(seen)


def test_a_run_ends_with_so_much_memory(mails: Any) -> None:
    mails.put_many(range(3))
    kept: list[bytes] = []
    most = resident_bytes(os.getpid()) + 50_000_000

    def handle(job: Any) -> None:
        if job.value == 1:
            kept.append(b"x" * 100_000_000)

    assert isinstance(run(mails, handle, workers=1, max_memory=most), Recycled)
    kept.clear()
    assert len(mails) == 1


def test_the_memory_of_a_process_that_is_gone() -> None:
    assert resident_bytes(1 << 30) == 0


def test_a_run_that_reaches_none_of_it_is_not_recycled(mails: Any) -> None:
    mails.put_many(range(3))
    left = run(mails, lambda job: None, workers=2, block=0, max_jobs=4, max_memory=1 << 40)
    assert left == 0 and not isinstance(left, Recycled)


def test_the_processes_of_a_run_are_replaced(tmp_path: Path) -> None:
    with opened("shared", tmp_path / "s") as store:
        mails = store.queue("mails")
        puts = [mails.put(["pid"]) for _ in range(7)]
        facts = mails.put(["facts"])
        given: dict[str, Any] = {"workers": 1, "max_jobs": 3, "block": 0.5, "results": True}
        assert mails.run(isolated.handle, processes=2, **given) == 0
        found = [put.result(0) for put in puts]
        assert len(set(found)) >= 3 and max(found.count(pid) for pid in found) <= 3
        assert facts.result(0)[1] == 1 and len(mails) == 0
