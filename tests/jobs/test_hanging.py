"""Handlers that hang are counted while they do: in the figures of a queue, of its workers, and of a scrape."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.jobs.test_cancel_running import KINDS, in_loop, opened
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.figures.working import Working
from tidelog.jobs.hangs import FORGET_S, NONE, RUNS_MAX, Counts, Hangs

LIMIT = 0.05  # seconds
GROUP = 0, b"mails", b"workers"


@pytest.fixture(params=("embedded", "shared"))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """An open store, and the same or a client of it."""
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        if request.param == "embedded":
            yield db, db
        else:
            stack.callback(tidelog.serve(db, port=0).close)
            yield db, stack.enter_context(tidelog.connect(tmp_path / "store"))


def scraped(db: Any) -> int:
    """As /metrics tells it."""
    (found,) = Working(inside.core(db)).figures(10, lambda key: key == b"mails")
    return found.hanging


def test_a_thread_that_hangs_is_counted_until_it_ends(stores: tuple[Any, Any]) -> None:
    db, store = stores
    mails, over = store.queue("mails", max_deliveries=1), threading.Event()
    mails.put("hangs", time_limit=LIMIT)
    mails.put("looks")

    def handler(job: Any) -> None:
        if job.value == "hangs":
            assert over.wait(PATIENCE_S)
            return
        until(lambda: mails.stats().hanging == 1, "it is counted")
        (worker,) = mails.workers()
        assert (worker.name, worker.hanging, worker.killed) == (job.worker, 1, 0)
        assert worker.as_dict()["hanging"] == scraped(db) == 1
        over.set()
        until(lambda: mails.stats().hanging == 0, "it ended after all")

    assert mails.run(handler, workers=3, block=4 * LIMIT) == 0
    assert mails.dead.count() == 1 and len(mails) == 0


def test_a_run_that_ends_takes_its_count_with_it(stores: tuple[Any, Any]) -> None:
    _, store = stores
    mails, over = store.queue("mails", max_deliveries=1), threading.Event()
    mails.put("hangs", time_limit=LIMIT)
    mails.put("looks")

    def handler(job: Any) -> None:
        if job.value == "hangs":
            assert over.wait(PATIENCE_S)
        else:
            until(lambda: mails.stats().hanging == 1)

    assert mails.run(handler, workers=3, block=4 * LIMIT) == 0
    assert mails.stats().hanging == 0
    over.set()


@KINDS
@in_loop
async def test_a_task_that_hangs_is_counted_until_it_ends(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path / "store") as store:
        mails, over = store.queue("mails", max_deliveries=1), asyncio.Event()
        await mails.put("hangs", time_limit=LIMIT)
        await mails.put("looks")

        async def handler(job: Any) -> None:
            if job.value == "hangs":
                while not over.is_set():
                    with suppress(asyncio.CancelledError):
                        await over.wait()
                return
            while (await mails.stats()).hanging != 1:
                await asyncio.sleep(LIMIT)
            (worker,) = await mails.workers()
            assert (worker.name, worker.hanging) == (job.worker, 1)
            over.set()
            while (await mails.stats()).hanging:
                await asyncio.sleep(LIMIT)

        assert await mails.arun(handler, workers=3, block=4 * LIMIT) == 0
        assert await mails.dead.count() == 1


def test_a_silent_run_is_forgotten() -> None:
    hangs = Hangs()
    hangs.tell(GROUP, b"run", b"anna", Counts(1, 2), 0.0)
    hangs.tell(GROUP, b"other", b"anna", Counts(1, 0), 1.0)
    assert hangs.of(GROUP, 1.0) == {b"anna": Counts(2, 2)}
    assert hangs.of((0, b"mails", b"audit"), 1.0) == {}
    assert hangs.sum(GROUP, FORGET_S) == Counts(1, 0)
    assert hangs.sum(GROUP, FORGET_S + 1) == NONE
    for run in range(RUNS_MAX + 5):
        hangs.tell(GROUP, b"%d" % run, b"anna", Counts(1, 0), 0.0)
    assert hangs.sum(GROUP, 1.0) == Counts(RUNS_MAX, 0)


def test_a_client_without_a_run_may_tell_it(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "store", fsync="no") as db, tidelog.serve(db, port=0):
        with tidelog.connect(tmp_path / "store") as store:
            tell: Any = store.execute_command
            tell("QUEUE", "HANGS", "mails", "anna", "run", 2, 1)
            stats = store.queue("mails").stats()
            assert (stats.hanging, stats.killed) == (2, 1)
            (anna,) = store.queue("mails").workers()
            assert (anna.name, anna.lives, anna.hanging, anna.killed) == ("anna", True, 2, 1)
            for wrong in (("run", -1, 0), ("run", "x", 0), ("r" * 65, 1, 0)):
                with pytest.raises(tidelog.ResponseError):
                    tell("QUEUE", "HANGS", "mails", "anna", *wrong)
            tell("QUEUE", "HANGS", "mails", "anna", "run", 0, 0)
            assert store.queue("mails").stats().hanging == 0
