"""A job fails by all that its handler raises, and the worker goes on. For all faces of a queue.

Two things stop a worker instead: KeyboardInterrupt, and a cancellation that was sent to the worker's own task.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Bench

import tidelog


class Panic(BaseException):
    """As an extension in Rust raises it, or gevent for a timeout."""


class NoText(Exception):
    def __str__(self) -> str:
        raise Panic("no text")


class Exits(Exception):
    def __str__(self) -> str:
        sys.exit(3)


class NoNotes(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise LookupError("no notes")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise LookupError("no name")
        return super().__getattribute__(name)


class OfNoName(Exception, metaclass=Nameless):
    pass


def cancelled() -> None:
    """Raise CancelledError out of something that others cancelled."""

    async def main() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(10))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    asyncio.run(main())


RAISED: dict[str, tuple[Callable[[], object], str]] = {
    "panic": (lambda: raised(Panic("broken")), "Panic: broken"),
    "exit": (lambda: sys.exit("no"), "SystemExit: no"),
    "generator": (lambda: raised(GeneratorExit()), "GeneratorExit"),
    "cancelled": (lambda: raised(asyncio.CancelledError()), "CancelledError"),
    "no text": (lambda: raised(NoText()), "NoText: (its text raised Panic)"),
    "exits": (lambda: raised(Exits()), "Exits: (its text raised SystemExit)"),
    "no notes": (lambda: raised(NoNotes("x")), "NoNotes: x"),
    "no name": (lambda: raised(OfNoName("x")), "an exception without a name: x"),
}


def raised(error: BaseException) -> None:
    raise error


@pytest.fixture(params=["embedded", "shared"])
def open_queue(request: pytest.FixtureRequest, bench: Bench) -> Callable[..., Any]:
    """A queue of either backend, for threads."""
    store = bench.db if request.param == "embedded" else bench.connect()
    return lambda **options: store.queue("mails", **options)


def left(mails: Any) -> dict[str, str]:
    """The dead jobs: value -> the last error."""
    return {dead.value: dead.errors[-1].error for dead in mails.dead}


def test_threads(open_queue: Callable[..., Any]) -> None:
    mails = open_queue(max_deliveries=1)
    names = [*RAISED, "good", "asyncio"]
    mails.put_many(names)
    done: list[str] = []

    def handle(job: Any) -> None:
        if job.value == "asyncio":
            cancelled()
        elif job.value in RAISED:
            RAISED[job.value][0]()
        done.append(job.value)

    assert mails.run(handle, workers=2, block=0) == 0
    assert done == ["good"]
    wanted = {name: error for name, (_, error) in RAISED.items()} | {"asyncio": "CancelledError"}
    assert left(mails) == wanted


def test_a_result_that_no_codec_encodes_makes_the_job_dead_at_once(
    open_queue: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The handler did its work: a retry would do it once more, and fail again."""
    mails = open_queue()
    mails.put_many(["set", "list"])
    done: list[str] = []

    def send(job: Any) -> object:
        done.append(job.value)
        return {1} if job.value == "set" else [1]

    assert mails.run(send, workers=1, block=0, results=True) == 0
    assert done == ["set", "list"]
    check_no_result(mails, caplog)


def check_no_result(mails: Any, caplog: pytest.LogCaptureFixture) -> None:
    (dead,) = mails.dead
    said = "codec json cannot encode a result of type set"
    assert dead.value == "set" and dead.deliveries == 1 and said in dead.reason
    with pytest.raises(tidelog.JobFailed, match=said):
        mails.result(dead.original_id)
    (line,) = [record.message for record in caplog.records if record.name == "tidelog.worker"]
    assert "send returned for job" in line and said in line


@pytest.mark.parametrize("shared", [False, True], ids=["embedded", "shared"])
def test_a_result_of_a_task_that_no_codec_encodes_makes_the_job_dead_at_once(
    bench: Bench, shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench.db.queue("mails").put_many(["set", "list"])
    done: list[str] = []

    async def send(job: Any) -> object:
        done.append(job.value)
        return {1} if job.value == "set" else [1]

    async def main() -> None:
        async with tidelog.aqueue(bench.root, "mails", shared=shared) as queue:
            assert await queue.arun(send, workers=1, block=0, results=True) == 0

    if shared:
        asyncio.run(main())
    else:
        bench.db.close()
        bench.serving.close()
        asyncio.run(main())
        bench.begin()
    assert done == ["set", "list"]
    check_no_result(bench.db.queue("mails"), caplog)


@pytest.mark.parametrize("shared", [False, True], ids=["embedded", "shared"])
def test_tasks(bench: Bench, shared: bool) -> None:
    names = [*RAISED, "good", "inner", "own"]
    bench.db.queue("mails").put_many(names)
    done: list[str] = []

    async def handle(job: Any) -> None:
        if job.value == "inner":
            inner = asyncio.ensure_future(asyncio.sleep(10))
            await asyncio.sleep(0)
            inner.cancel()
            await inner
        elif job.value == "own":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(10)
        elif job.value in RAISED:
            await asyncio.sleep(0)
            RAISED[job.value][0]()
        done.append(job.value)

    async def main() -> None:
        if shared:
            async with tidelog.aconnect(bench.root) as client:
                queue = client.queue("mails", max_deliveries=1)
                assert await queue.arun(handle, workers=2, block=0) == 0

    if shared:
        asyncio.run(main())
    else:
        bench.db.close()

        async def embedded() -> None:
            async with tidelog.aqueue(bench.root, "mails", max_deliveries=1) as queue:
                assert await queue.arun(handle, workers=2, block=0) == 0

        bench.serving.close()
        asyncio.run(embedded())
        bench.begin()
    assert done == ["good"]
    found = left(bench.db.queue("mails"))
    wanted = {name: error for name, (_, error) in RAISED.items()}
    assert found == wanted | {"inner": "CancelledError", "own": "CancelledError"}


def test_an_interrupt_stops_the_worker_and_is_no_failure(open_queue: Callable[..., Any]) -> None:
    mails = open_queue(max_deliveries=1)
    mails.put("one")
    with pytest.raises(KeyboardInterrupt):
        mails.run(lambda job: raised(KeyboardInterrupt()), workers=1)
    job = mails.get(block=0)
    assert job is not None and job.deliveries == 1


def test_a_block_that_is_left_by_a_panic_has_failed(open_queue: Callable[..., Any]) -> None:
    mails = open_queue(max_deliveries=1)
    mails.put("one")
    with pytest.raises(Panic), mails.get(block=0):
        raise Panic("broken")
    assert left(mails) == {"one": "Panic: broken"}


def test_a_cancelled_task_gives_back_the_job_of_a_queue_for_threads(
    open_queue: Callable[..., Any],
) -> None:
    """The block is not asynchronous, and what is awaited in it is."""
    mails = open_queue(max_deliveries=1)
    mails.put("one")

    async def work() -> None:
        with mails.get(block=0):
            await asyncio.sleep(10)

    async def main() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    job = mails.get(block=0)
    assert job is not None and job.deliveries == 1 and left(mails) == {}


def test_a_worker_that_others_cancel_ends_the_run_with_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "mails") as queue:
            await queue.put("one")

            async def handle(job: Any) -> None:
                (worker,) = [
                    task for task in asyncio.all_tasks() if task.get_name() == "tidelog-worker-0"
                ]
                worker.cancel()
                await asyncio.sleep(10)

            with pytest.raises(
                tidelog.TidelogError, match="a worker of the queue 'mails' was canc"
            ):
                await queue.arun(handle, workers=1)
            job = await queue.get(block=0)
            assert job is not None and job.deliveries == 1

    asyncio.run(main())
