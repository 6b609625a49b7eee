"""A job fails by all that its handler raises, and the worker goes on. For all faces of a queue.

Two things stop a worker instead: KeyboardInterrupt, and a cancellation that was sent to the worker's own task.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import KINDS, aopened, opened

import tidelog

THREADS = [kind for kind in KINDS if "asyncio" not in kind]
BACKENDS = THREADS


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


class OddText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise LookupError("no text")

    def __str__(self) -> str:
        return self.__repr__()


def cancelled() -> None:
    """Raise CancelledError out of something that others cancelled."""

    async def main() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(10))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    asyncio.run(main())


def in_a_circle() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def too_deep() -> None:
    too_deep()


def long_chain() -> None:
    error = ValueError(0)
    for number in range(1, 3000):
        cause, error = error, ValueError(number)
        error.__cause__ = cause
    raise error


def deep_group() -> None:
    error: Exception = ValueError("inside")
    for _ in range(300):
        error = ExceptionGroup("group", [error])
    raise error


def in_a_file_of_no_name() -> None:
    exec(compile("raise ValueError('here')", "caf\udce9.py", "exec"))


# name -> what a handler does, and the error that is recorded
RAISED: dict[str, tuple[Callable[[], object], str]] = {
    "panic": (lambda: raised(Panic("broken")), "Panic: broken"),
    "exit": (lambda: sys.exit("no"), "SystemExit: no"),
    "generator": (lambda: raised(GeneratorExit()), "GeneratorExit"),
    "cancelled": (lambda: raised(asyncio.CancelledError()), "CancelledError"),
    "no text": (lambda: raised(NoText()), "NoText: (its text raised Panic)"),
    "exits": (lambda: raised(Exits()), "Exits: (its text raised SystemExit)"),
    "odd text": (lambda: raised(OddText()), "OddText: (its text raised TypeError)"),
    "no repr": (lambda: raised(NoRepr()), "NoRepr: (its text raised LookupError)"),
    "no notes": (lambda: raised(NoNotes("x")), "NoNotes: x"),
    "no name": (lambda: raised(OfNoName("x")), "an exception without a name: x"),
    "circle": (in_a_circle, "ValueError: first"),
    "too deep": (too_deep, "RecursionError: maximum recursion depth exceeded"),
    "long chain": (long_chain, "ValueError: 2999"),
    "deep group": (deep_group, "ExceptionGroup: group (1 sub-exception)"),
    "wide group": (
        lambda: raised(ExceptionGroup("group", [ValueError("x" * 1000)] * 2000)),
        "ExceptionGroup: group (2000 sub-exceptions)",
    ),
    "file": (in_a_file_of_no_name, "ValueError: here"),
    "surrogate": (lambda: raised(ValueError("caf\udce9")), r"ValueError: caf\udce9"),
    "control": (lambda: raised(ValueError("a\0b\x1b[31m\r\n")), "ValueError: a\0b\x1b[31m\r\n"),
    "long": (lambda: raised(ValueError("x" * 100_000)), f"ValueError: {'x' * 1988}"),
    "memory": (lambda: raised(MemoryError()), "MemoryError"),
}


def raised(error: BaseException) -> None:
    raise error


@pytest.fixture(params=KINDS)
def mails(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue whose jobs are dead after one failure, through each face, called as if it were for threads."""
    with opened(request.param, tmp_path / "s") as store:
        yield store.queue("mails", max_deliveries=1)


def left(mails: Any) -> dict[str, str]:
    """The dead jobs: value -> the last error."""
    return {dead.value: dead.errors[-1].error for dead in mails.dead.list()}


def was_given_back(mails: Any) -> None:
    """The job that a worker had goes back, and this delivery did not count."""
    job = mails.get(block=60)
    assert job is not None and job.deliveries == 1 and left(mails) == {}
    assert job.ack()


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_threads(mails: Any) -> None:
    mails.put_many([*RAISED, "good", "asyncio"])
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


@pytest.mark.parametrize("mails", [kind for kind in KINDS if kind not in THREADS], indirect=True)
def test_tasks(mails: Any) -> None:
    mails.put_many([*RAISED, "good", "inner", "own"])
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

    assert mails.arun(handle, workers=2, block=0) == 0
    assert done == ["good"]
    wanted = {name: error for name, (_, error) in RAISED.items()}
    assert left(mails) == wanted | {"inner": "CancelledError", "own": "CancelledError"}


def test_a_result_that_the_codec_cannot_encode(mails: Any) -> None:
    """It leaves the job open for another result."""
    mails.put("asks")
    job = mails.get(block=0)
    with pytest.raises(tidelog.EncodeError):
        job.ack(result={1, 2})
    assert job.state == "open" and job.ack(result=[1, 2])
    assert mails.result(job.id, 0) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_whose_result_no_codec_encodes_is_not_called_again(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It did its work: a retry would do it once more, and fail again."""
    done: list[str] = []

    def send(job: Any) -> object:
        done.append(job.value)
        return {1} if job.value == "set" else [1]

    async def tasks(job: Any) -> object:
        return send(job)

    with opened(kind, tmp_path / "s") as store:
        mails = store.queue("mails")
        mails.put_many(["set", "list"])
        run = (mails.run, send) if kind in THREADS else (mails.arun, tasks)
        assert run[0](run[1], workers=1, block=0, results=True) == 0
        assert done == ["set", "list"]
        (dead,) = mails.dead.list()
        said = "codec json cannot encode a result of type set"
        assert dead.value == "set" and dead.deliveries == 1 and said in dead.reason
        with pytest.raises(tidelog.JobFailed, match=said):
            mails.result(dead.original_id)
    (line,) = [each.message for each in caplog.records if "returned for job" in each.message]
    assert run[1].__name__ in line and said in line


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_an_interrupt_stops_the_worker_and_is_no_failure(mails: Any) -> None:
    mails.put("one")
    with pytest.raises(KeyboardInterrupt):
        mails.run(lambda job: raised(KeyboardInterrupt()), workers=1)
    was_given_back(mails)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_stops_the_tasks_and_is_no_failure(backend: str, tmp_path: Path) -> None:
    async def handle(job: Any) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", max_deliveries=1)
            await mails.put("one")
            await mails.arun(handle, workers=1)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    with opened(backend, tmp_path / "s") as db:
        was_given_back(db.queue("mails", max_deliveries=1))


def test_a_block_that_is_left_by_a_panic_has_failed(mails: Any) -> None:
    mails.put("one")
    with pytest.raises(Panic), mails.get(block=0):
        raise Panic("broken")
    assert left(mails) == {"one": "Panic: broken"}


async def cancel(work: Any) -> None:
    """Cancel a task that has begun, and wait for its end."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_a_cancelled_task_gives_back_the_job_of_a_queue_for_threads(mails: Any) -> None:
    """The block is not asynchronous, and what is awaited in it is."""
    mails.put("one")

    async def work() -> None:
        with mails.get(block=0):
            await asyncio.sleep(10)

    asyncio.run(cancel(work()))
    was_given_back(mails)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancelled_task_gives_back_its_job(backend: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", max_deliveries=1)
            await mails.put("one")
            job = await mails.get(block=0)

            async def work() -> None:
                async with job:
                    await asyncio.sleep(10)

            await cancel(work())

    asyncio.run(main())
    with opened(backend, tmp_path / "s") as db:
        was_given_back(db.queue("mails", max_deliveries=1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_that_others_cancel_ends_the_run_with_an_error(
    backend: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with aopened(backend, tmp_path / "s") as db:
            mails = db.queue("mails", max_deliveries=1)
            await mails.put("one")

            async def handle(job: Any) -> None:
                (worker,) = [
                    task for task in asyncio.all_tasks() if task.get_name() == "tidelog-worker-0"
                ]
                worker.cancel()
                await asyncio.sleep(10)

            with pytest.raises(
                tidelog.TidelogError, match="a worker of the queue 'mails' was canc"
            ):
                await mails.arun(handle, workers=1)

    asyncio.run(main())
    with opened(backend, tmp_path / "s") as db:
        was_given_back(db.queue("mails", max_deliveries=1))


@pytest.mark.parametrize("kind", THREADS)
def test_the_log_does_not_say_that_a_job_failed_which_its_worker_had_lost(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is not recorded: somebody else has done the job."""
    with opened(kind, tmp_path / "s") as store:
        mails = store.queue("mails")
        mails.put("a")
        job = mails.get("anna", 0)
        assert store.xack("mails", "workers", job.id) == 1
        with job:
            raise ValueError("no")
        assert job.state == "lost" and mails.failures(job.id) == []
    assert f"job {job.id} was already lost when its block raised: ValueError: no" in caplog.text
    assert "failed at delivery" not in caplog.text
