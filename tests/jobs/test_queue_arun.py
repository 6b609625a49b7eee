"""Running workers as tasks: they end in order at a signal, and a cancelled handler's job is not counted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.until import PATIENCE_S

import tidelog


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_every_job_is_done_once_by_as_many_tasks_as_asked_for(tmp_path: Path) -> None:
    async def main() -> list[int]:
        done: list[int] = []
        together = asyncio.Barrier(3)
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put_many(range(50))

            async def handle(job: tidelog.AsyncJob) -> None:
                if job.value < 3:
                    await together.wait()
                done.append(job.value)

            assert await mails.arun(handle, workers=3, block=0) == 0
            assert (await mails.stats()).depth == 0
        return done

    assert sorted(asyncio.run(main())) == list(range(50))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_fetching_and_lets_running_jobs_end(
    number: signal.Signals, tmp_path: Path
) -> None:
    async def main() -> None:
        before = handlers()
        done: list[int] = []
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put_many(range(10))

            async def handle(job: tidelog.AsyncJob) -> None:
                if job.value == 0:
                    os.kill(os.getpid(), number)
                for _ in range(100):  # the signal is seen meanwhile
                    await asyncio.sleep(0)
                done.append(job.value)

            assert await mails.arun(handle, workers=2) == 0
            assert 0 in done and len(done) < 10
            assert (await mails.stats()).depth == 10 - len(done)
        assert handlers() == before

    asyncio.run(main())


def test_a_handler_that_runs_on_after_the_drain_is_cancelled_and_its_job_released(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        cancelled: list[int] = []
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put(0)

            async def handle(job: tidelog.AsyncJob) -> None:
                os.kill(os.getpid(), signal.SIGTERM)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(job.value)
                    raise

            assert await mails.arun(handle, workers=2, drain=0.01) == 1
            job = await mails.get("other", block=0)
            assert job is not None and job.deliveries == 1
        assert cancelled == [0]

    asyncio.run(main())


def test_a_handler_that_resists_its_cancellation_loses_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.api.queue.running.tasks.GRACE_SECONDS", 0.01)

    async def main() -> None:
        go = asyncio.Event()
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put(0)

            async def handle(job: tidelog.AsyncJob) -> None:
                os.kill(os.getpid(), signal.SIGTERM)
                while not go.is_set():
                    try:
                        await go.wait()
                    except asyncio.CancelledError:
                        pass

            assert await mails.arun(handle, workers=1, drain=0) == 1
            job = await mails.get("other", block=0)
            assert job is not None and job.deliveries == 1
            go.set()
            assert await job.ack()

    asyncio.run(main())


def test_cancelling_the_run_cancels_its_handlers(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put(0)
            began = asyncio.Event()

            async def handle(job: tidelog.AsyncJob) -> None:
                began.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(mails.arun(handle))
            await asyncio.wait_for(began.wait(), PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            job = await mails.get("other", block=0)
            assert job is not None and job.deliveries == 1

    asyncio.run(main())


def test_a_second_ctrl_c_cancels_as_asyncio_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            await mails.put(0)

            async def handle(job: tidelog.AsyncJob) -> None:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.Event().wait()

            await mails.arun(handle, drain=3600)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    with tidelog.queue(tmp_path / "s", "mails", fsync="no") as mails:
        job = mails.get("other", block=0)
        assert job is not None and job.deliveries == 1


def test_a_handler_that_fails_or_exits_is_recorded_and_the_worker_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no", max_deliveries=1) as mails:
            await mails.put_many([0, 1, 2])
            done: list[int] = []

            async def handle(job: tidelog.AsyncJob) -> None:
                if job.value == 0:
                    sys.exit(3)
                if job.value == 1:
                    raise LookupError("no such address")
                done.append(job.value)

            await mails.arun(handle, workers=1, block=0)
            assert done == [2]
            assert sorted([dead.errors[-1].error async for dead in mails.dead]) == [
                "LookupError: no such address",
                "SystemExit: 3",
            ]

    asyncio.run(main())


def test_a_plain_function_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails", fsync="no") as mails:
            with pytest.raises(tidelog.DataError, match="async function"):
                await mails.arun(print)  # type: ignore[arg-type]

    asyncio.run(main())


def test_closing_the_store_ends_the_run(tmp_path: Path) -> None:
    async def main() -> None:
        mails = await tidelog.aqueue(tmp_path / "s", "mails", fsync="no")
        await mails.put(0)
        done = asyncio.Event()

        async def handle(job: tidelog.AsyncJob) -> None:
            done.set()

        task = asyncio.create_task(mails.arun(handle))
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        await mails.aclose()
        assert await asyncio.wait_for(task, PATIENCE_S) == 0

    asyncio.run(main())
