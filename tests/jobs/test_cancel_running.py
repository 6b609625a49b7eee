"""A job that is cancelled while its handler runs: the handler learns it, its task is cancelled, the worker goes on."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.until import PATIENCE_S, until

import tidelog


@pytest.fixture(params=("embedded", "shared"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An open store, or a client of a served one."""
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        if request.param == "embedded":
            yield db
        else:
            stack.callback(tidelog.serve(db, port=0).close)
            yield stack.enter_context(tidelog.connect(tmp_path / "store"))


KINDS = pytest.mark.parametrize("kind", ("embedded", "shared"))


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, run in a loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


@asynccontextmanager
async def opened(kind: str, root: Path) -> AsyncIterator[Any]:
    """The same for asyncio."""
    if kind == "embedded":
        async with await tidelog.aopen(root, fsync="no") as db:
            yield db
    else:
        with tidelog.open(root, fsync="no") as served, tidelog.serve(served, port=0):
            async with await tidelog.aconnect(root) as db:
                yield db


def test_a_handler_of_a_thread_asks(store: Any) -> None:
    mails = store.queue("mails")
    id, other = mails.put("a"), mails.put("b")
    began, done = threading.Event(), list[str]()

    def handler(job: Any) -> None:
        assert not job.cancelled and job.state == "open"
        if job.value == "a":
            began.set()
            until(lambda: job.cancelled, "the handler learns it")
            assert job.state == "cancelled"
        done.append(job.value)

    def cancel() -> None:
        assert began.wait(PATIENCE_S)
        assert mails.cancel(id)

    thread = threading.Thread(target=cancel)
    thread.start()
    assert mails.run(handler, block=0.2) == 0
    thread.join()
    assert (
        sorted(done) == ["a", "b"]
        and mails.job(id).state == "cancelled"
        and mails.job(other) is None
    )
    assert mails.dead.count() == 0 and mails.failures() == []


def test_a_function_is_called(store: Any) -> None:
    """Once, also if the job was cancelled before; not for a job that is done."""
    mails = store.queue("mails")
    called, told = list[int](), threading.Event()

    def second() -> None:
        called.append(2)
        told.set()

    done = mails.put("a")
    with mails.get() as job:
        job.on_cancel(lambda: called.append(0))
    assert not mails.cancel(done)
    id = mails.put("b")
    with mails.get() as job:
        job.on_cancel(lambda: called.append(1))
        job.on_cancel(second)
        assert mails.cancel(id) and told.wait(PATIENCE_S)
        job.on_cancel(lambda: called.append(3))
    assert called == [2, 3]


@KINDS
@in_loop
async def test_the_task_of_a_handler_is_cancelled(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path / "store") as store:
        mails = store.queue("mails")
        id, other = await mails.put("a"), await mails.put("b")
        began, seen = asyncio.Event(), list[Any]()

        async def handler(job: Any) -> None:
            if job.value == "a":
                began.set()
                try:
                    await asyncio.sleep(PATIENCE_S)
                except asyncio.CancelledError:
                    seen.append(job.cancelled)
                    raise
            seen.append(job.value)

        async def cancel() -> None:
            await began.wait()
            assert await mails.cancel(id)

        task = asyncio.create_task(cancel())
        assert await mails.arun(handler, workers=1, block=0.2) == 0
        await task
        assert seen == [True, "b"], "the worker went on"
        assert (await mails.job(id)).state == "cancelled" and await mails.job(other) is None
        assert (await mails.stats()).dead == 0 and await mails.failures() == []


@KINDS
@in_loop
async def test_the_block_takes_its_cancellation_back(kind: str, tmp_path: Path) -> None:
    """Also if the block catches it, or raises something else after it."""
    async with opened(kind, tmp_path / "store") as store:
        mails = store.queue("mails")
        seen = list[Any]()

        async def block(job: Any, how: str) -> None:
            async with job:
                assert await mails.cancel(job.id)
                try:
                    await asyncio.sleep(PATIENCE_S)
                except asyncio.CancelledError:
                    if how == "raise":
                        raise ValueError("other") from None
                    if how == "propagate":
                        raise
                seen.append(how)

        for how in ("catch", "raise", "propagate"):
            await mails.put(how)
            job = await mails.get()
            await block(job, how)
            assert job.state == "cancelled" and not await job.ack()
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)
        assert seen == ["catch"]


@KINDS
@in_loop
async def test_a_task_that_others_cancel_as_well_is_cancelled(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path / "store") as store:
        mails = store.queue("mails")
        id, began = await mails.put("a"), asyncio.Event()

        async def work() -> None:
            async with await mails.get() as job:
                job.on_cancel(lambda: None)
                began.set()
                try:
                    await asyncio.sleep(PATIENCE_S)
                finally:
                    task.cancel()

        task = asyncio.create_task(work())
        await began.wait()
        assert await mails.cancel(id)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await mails.job(id)).state == "cancelled"


@KINDS
@in_loop
async def test_a_task_outside_the_block_is_left_alone(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path / "store") as store:
        mails = store.queue("mails")
        id = await mails.put("a")
        job = await mails.get()
        assert await mails.cancel(id)
        await asyncio.sleep(0.01)
        assert not await job.ack() and job.cancelled


def test_a_job_of_a_batch_that_was_not_handed_out_is_not(store: Any) -> None:
    mails = store.queue("mails")
    ids = [mails.put(n) for n in range(4)]
    jobs = mails.consume("anna", batch=4, block=0)
    first = next(jobs)
    assert mails.cancel(ids[2]) and mails.cancel(ids[0])
    if hasattr(mails, "_remote"):
        mails._remote.keeper.beat(at_once=True)
    with first:
        pass
    left = []
    for job in jobs:
        with job:
            left.append(job.value)
    assert left == [1, 3] and first.state == "cancelled"
    assert [mails.job(id) and mails.job(id).state for id in ids] == ["cancelled", None] * 2


def test_a_worker_learns_it_from_a_new_server(tmp_path: Path) -> None:
    """The server that was told of the cancel is gone when the worker renews."""
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        serving = tidelog.serve(db, port=0)
        mails: Any = stack.enter_context(tidelog.connect(tmp_path / "store")).queue("mails")
        id = mails.put("a")
        job = mails.get()
        assert mails.cancel(id)
        serving.close()
        db.close()
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        stack.callback(tidelog.serve(db, port=0).close)
        mails._remote.keeper.beat(at_once=True)
        assert job.cancelled and not job.ack() and mails.job(id).state == "cancelled"


@pytest.mark.parametrize("kind", ["embedded", "shared"])
def test_the_block_of_a_job_that_was_acknowledged_before(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(kind, tmp_path / "store") as store:
            mails = store.queue("mails")
            await mails.put("a")
            job = await mails.get(block=0)
            assert await job.ack()
            async with job:
                assert job.state == "acked"
            await mails.put("b")
            other = await mails.get(block=0)
            assert not await other.__aexit__(None, None, None)  # by hand, as a framework may
            assert other.state == "acked"

    asyncio.run(main())
