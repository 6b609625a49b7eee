"""A handler that works for longer than its limit of time: its job fails, and its worker goes on. All faces."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import KINDS, Bench, opened
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.server.commands import capabilities

THREADS = [kind for kind in KINDS if "asyncio" not in kind]
TASKS = [kind for kind in KINDS if "asyncio" in kind]
SHORT = 0.05  # seconds
LIMIT = 0.5  # time enough for a handler that does nothing


@pytest.fixture
def mails(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A queue whose jobs are dead after one failure, called as if it were for threads."""
    with opened(request.param, tmp_path / "s") as store:
        yield store.queue("mails", max_deliveries=1)


@pytest.fixture
def go() -> Iterator[threading.Event]:
    """An event on which handlers hang; it is set after the test."""
    event = threading.Event()
    yield event
    event.set()
    until(lambda: all("tidelog-w" not in each.name for each in threading.enumerate()))


def left(mails: Any) -> dict[str, str]:
    """The dead jobs: value -> the last error."""
    return {dead.value: dead.errors[-1].error for dead in mails.dead.list()}


def said(limit: float) -> str:
    return f"TimeLimitExceeded: the handler worked for more than {limit:g} s"


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_a_thread_that_hangs_keeps_neither_its_job_nor_its_worker(
    mails: Any, go: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    mails.put("hangs")
    mails.put("hangs by its own", time_limit=SHORT)
    mails.put("has time", time_limit=PATIENCE_S)
    mails.put_many(range(20))
    done: list[Any] = []

    def handle(job: Any) -> None:
        if "hangs" in str(job.value):
            where_it_hangs(go)
        if job.value == "has time":
            until(lambda: len(left(mails)) == 2)
        done.append(job.value)

    assert mails.run(handle, workers=5, block=2 * LIMIT, time_limit=LIMIT) == 0
    assert sorted(map(str, done)) == sorted(map(str, [*range(20), "has time"]))
    assert left(mails) == {"hangs": said(LIMIT), "hangs by its own": said(SHORT)}
    assert len(mails) == 0
    for dead in mails.dead.list():
        assert "in where_it_hangs" in dead.errors[0].traceback
        assert "running" not in dead.errors[0].traceback  # the stack of the handler alone
    hung = [record for record in caplog.records if hasattr(record, "hanging")]
    assert [record.hanging for record in hung] == [1, 2]
    assert "2 of 5 hang" in hung[1].getMessage()
    go.set()
    until(lambda: len(done) == 23)
    until(lambda: "; 0 hang" in caplog.text)
    assert len(left(mails)) == 2  # what ends so late changes nothing


def where_it_hangs(go: threading.Event) -> None:
    go.wait(PATIENCE_S)


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_a_run_of_which_half_hang_ends_in_order(mails: Any, go: threading.Event) -> None:
    mails.put_many(["hangs", "hangs"])
    mails.put("ends", time_limit=PATIENCE_S)
    both = threading.Barrier(3)

    def handle(job: Any) -> None:
        both.wait(PATIENCE_S)
        if job.value == "hangs":
            go.wait(PATIENCE_S)
        until(lambda: left(mails))

    limited = mails.store.queue("mails", max_deliveries=1, time_limit=LIMIT)
    with pytest.raises(tidelog.WorkersHang, match="half of the workers of the queue 'mails'"):
        limited.run(handle, workers=3)
    assert left(mails) == {"hangs": said(LIMIT)} and len(mails) == 0


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_a_job_that_hangs_is_tried_again_as_its_policy_says(
    mails: Any, go: threading.Event
) -> None:
    again = tidelog.RetryPolicy(max=2, base=0.01)
    mails.put("again", time_limit=SHORT, retry=again)
    never = tidelog.RetryPolicy(max=9, never=(tidelog.TimeLimitExceeded,))
    mails.put("never", time_limit=SHORT, retry=never)
    mails.put("on", time_limit=SHORT, retry="max=9 on=ConnectionError")
    found: list[Any] = []

    def handle(job: Any) -> None:
        found.append((job.value, job.deliveries))
        go.wait(PATIENCE_S)

    mails.run(handle, workers=9, block=2 * LIMIT)
    assert sorted(found) == [("again", 1), ("again", 2), ("never", 1), ("on", 1)]
    assert {dead.value: dead.deliveries for dead in mails.dead.list()} == {
        **{"again": 2, "never": 1, "on": 1}
    }


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_extend_gives_more_time(mails: Any, go: threading.Event) -> None:
    mails.put("extended")
    mails.put("hangs", time_limit=2 * LIMIT)

    def handle(job: Any) -> None:
        if job.value == "extended":
            assert job.extend(PATIENCE_S)
            until(lambda: left(mails))
        else:
            go.wait(PATIENCE_S)

    mails.run(handle, workers=3, block=3 * LIMIT, time_limit=LIMIT)
    assert left(mails) == {"hangs": said(2 * LIMIT)} and len(mails) == 0


@pytest.mark.parametrize("mails", THREADS, indirect=True)
def test_a_drain_goes_on_while_a_thread_hangs(mails: Any, go: threading.Event) -> None:
    """And the jobs that had been fetched with the one that hangs are not lost."""
    mails.put("hangs", time_limit=SHORT)
    mails.put_many(range(5))
    done: list[Any] = []

    def handle(job: Any) -> None:
        if job.value == "hangs":
            go.wait(PATIENCE_S)
        done.append(job.value)

    mails.run(handle, workers=3, batch=6, block=LIMIT, time_limit=PATIENCE_S)
    assert sorted(done) == list(range(5)) and len(mails) == 0


@pytest.mark.parametrize("mails", TASKS, indirect=True)
def test_a_task_is_cancelled(mails: Any) -> None:
    mails.put_many(["hangs", "stays", "cleans up", "nearly", "good"])
    mails.put("by its own", time_limit=SHORT)
    mails.put("has time", time_limit=PATIENCE_S)
    mails.put("extended")
    done: list[str] = []

    async def handle(job: Any) -> None:
        if job.value == "extended":
            assert await job.extend(PATIENCE_S)
        if job.value in ("has time", "extended"):
            await asyncio.sleep(2 * LIMIT)
        elif job.value == "cleans up":
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                done.append("cleaned up")
                return
        elif job.value == "stays":
            await stay()
        elif job.value not in ("good", "nearly"):
            await asyncio.sleep(PATIENCE_S)
        done.append(job.value)

    async def stay() -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(3 * PATIENCE_S)
            except asyncio.CancelledError:
                continue

    assert mails.arun(handle, workers=9, block=0, time_limit=LIMIT) == 0
    assert sorted(done) == ["cleaned up", "extended", "good", "has time", "nearly"]
    assert left(mails) == {
        **dict.fromkeys(("hangs", "stays", "cleans up"), said(LIMIT)),
        **{"by its own": said(SHORT)},
    }
    traces = {dead.value: dead.errors[0].traceback for dead in mails.dead.list()}
    assert all("in handle" in traces[name] for name in ("hangs", "stays", "by its own"))
    assert "in stay" in traces["stays"] and "it runs on here" in traces["stays"]


@pytest.mark.parametrize("mails", TASKS, indirect=True)
def test_a_run_of_which_half_of_the_tasks_run_on_ends(
    mails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mails.put_many(["stays", "good"])

    async def handle(job: Any) -> None:
        while job.value == "stays":
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                if ignored:
                    raise
                ignored.append(job.value)

    ignored: list[str] = []
    with pytest.raises(tidelog.WorkersHang):
        mails.arun(handle, workers=2, time_limit=SHORT)
    assert left(mails) == {"stays": said(SHORT)} and len(mails) == 0
    assert [record.hanging for record in caplog.records if hasattr(record, "hanging")] == [1]


@pytest.mark.parametrize("mails", TASKS, indirect=True)
def test_a_cancellation_of_the_handlers_own_is_no_limit(mails: Any) -> None:
    mails.put("own", time_limit=PATIENCE_S)
    mails.put("raises", time_limit=PATIENCE_S)

    async def handle(job: Any) -> None:
        if job.value == "raises":
            await asyncio.sleep(0)
            raise LookupError("no")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(PATIENCE_S)

    assert mails.arun(handle, workers=2, block=0) == 0
    assert left(mails) == {"own": "CancelledError", "raises": "LookupError: no"}


@pytest.mark.parametrize("backend", ["embedded", "shared"])
def test_a_worker_that_is_cancelled_passes_that_on(tmp_path: Path, backend: str) -> None:
    """The handler's limit is not over, so the job goes back and has not failed."""
    ended: list[str] = []

    async def main() -> None:
        with tidelog.open(tmp_path / "s", fsync="no") as db, tidelog.serve(db, port=0):
            async with tidelog.aconnect(tmp_path / "s") as store:
                await work(store)

    async def work(store: Any) -> None:
        queue = store.queue("mails", time_limit=PATIENCE_S)
        await queue.put("a")
        begun = asyncio.Event()

        async def handle(job: Any) -> None:
            begun.set()
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        run = asyncio.create_task(queue.arun(handle, workers=1))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        job = await queue.get(block=PATIENCE_S)
        assert job is not None and job.deliveries == 1 and await job.ack()

    async def embedded() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as store:
            await work(store)

    asyncio.run(embedded() if backend == "embedded" else main())
    assert ended == ["cancelled"]


# --- a server of an earlier version


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.put(2, time_limit=1),
        lambda queue: queue.put_many([2, 3], time_limit=1),
        lambda queue: queue.put(2, time_limit=1, retry="max=2"),
    ],
)
def test_a_put_that_the_server_does_not_know(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any]
) -> None:
    can = tuple(each for each in capabilities.CAPABILITIES if each != b"limit")
    monkeypatch.setattr(capabilities, "CAPABILITIES", can)
    queue: Any = bench.connect().queue("q", time_limit=5)  # which the server need not know
    queue.put(1)
    with pytest.raises(tidelog.Unsupported, match="'limit'"):
        call(queue)
    assert len(queue) == 1


def test_a_full_disk_delays_the_failure(
    tmp_path: Path, go: threading.Event, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    """The job is held until its failure can be stored."""
    monkeypatch.setattr("tidelog.api.queue.running.watch.AGAIN_SECONDS", 0.01)
    caplog.set_level(logging.WARNING)
    with tidelog.queue(tmp_path / "s", "mails", fsync="no", max_deliveries=1) as mails:
        mails.put("hangs")
        real, full = mails._core.decided, threading.Event()  # noqa: SLF001
        full.set()

        def decided(*given: Any) -> Any:
            if full.is_set() and threading.current_thread().name == "tidelog-watch":
                raise tidelog.NotStored("no room")
            return real(*given)

        monkeypatch.setattr(type(mails._core), "decided", lambda self, *given: decided(*given))  # noqa: SLF001
        run = threading.Thread(
            target=mails.run,
            args=(lambda job: go.wait(PATIENCE_S),),
            kwargs={"time_limit": SHORT, "block": LIMIT, "workers": 3},
        )
        run.start()
        until(lambda: "no room" in caplog.text)
        assert left(mails) == {}
        full.clear()
        until(lambda: left(mails) == {"hangs": said(SHORT)})
        run.join(PATIENCE_S)
