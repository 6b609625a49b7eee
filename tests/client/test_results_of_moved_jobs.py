"""The ID that `put` returned finds a job's result, or that it has none, whatever moved the job. For all faces of a
queue.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.until import PATIENCE_S, parked, until

import tidelog
from tidelog import testing
from tidelog.jobs.work import origins
from tidelog.jobs.work.leases import leases_of

OPTIONS: dict[str, Any] = {"retry_after": 60.0, "max_deliveries": 3}
FACES = ["embedded threads", "embedded asyncio", "shared threads", "shared asyncio"]


class Face:
    """A queue through one of its faces, called as if all were for threads. The clock of its store stands still."""

    def __init__(self, name: str, root: Path, stack: ExitStack) -> None:
        self.clock = testing.Clock()
        self._shared, self._tasks = name.startswith("shared"), name.endswith("asyncio")
        self._root, self._stack = root, stack
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()

        def end() -> None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE_S)
            self._loop.close()

        stack.callback(end)
        self._begin()

    def _begin(self) -> None:
        self._opened = self._stack.enter_context(ExitStack())
        if not self._shared and self._tasks:
            self._db = self._enter(tidelog.aopen(self._root, fsync="no", clock=self.clock))
            self.store = self._db
            return
        self._db = tidelog.open(self._root, fsync="no", clock=self.clock)
        self._opened.callback(self._db.close)
        self.store = self._db
        if self._shared:
            self._opened.enter_context(tidelog.serve(self._db, port=0))
            if self._tasks:
                self.store = self._enter(tidelog.aconnect(self._root))
            else:
                self.store = self._opened.enter_context(tidelog.connect(self._root))

    def _enter(self, manager: Any) -> Any:
        found = self._await(manager.__aenter__())
        self._opened.callback(lambda: self._await(manager.__aexit__(None, None, None)))
        return found

    def _await(self, found: Any) -> Any:
        if not inspect.isawaitable(found):
            return found

        async def whole() -> Any:
            return await found

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(PATIENCE_S)

    def restart(self) -> None:
        """Close everything and open it again."""
        self._opened.close()
        self._begin()

    def queue(self, **options: Any) -> Any:
        return self.store.queue("q", **OPTIONS | options)

    def __call__(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return self._await(method(*args, **named))

    def take(self, worker: str = "anna", **options: Any) -> Any:
        job = self(self.queue(**options).get, worker, block=0)
        assert job is not None
        return job

    def redrive(self) -> None:
        assert self(self.queue().dead.redrive) == 1

    def outcome(self, handle: Any, timeout: float | None = 0, **options: Any) -> str:
        """The answer to a caller who asks with the ID that `put` returned."""
        try:
            return f"result {self(self.queue(**options).result, str(handle), timeout)}"
        except tidelog.TidelogError as error:
            return type(error).__name__

    def parked(self, count: int) -> None:
        parked(self._db, count)

    @property
    def notes(self) -> int:
        """How many jobs with another ID the store's process has noted."""
        return len(leases_of(inside.core(self._db)).results[0, b"q"].origins)


class Asking:
    """A thread that waits for the result of a job, without a timeout."""

    def __init__(self, face: Face, handle: Any, parks: int = 1) -> None:
        self._found: list[str] = []
        self._thread = threading.Thread(
            target=lambda: self._found.append(face.outcome(handle, None)), daemon=True
        )
        self._thread.start()
        face.parked(parks)

    @property
    def found(self) -> str:
        """The clock stands still, so only the end of the job wakes the caller."""
        self._thread.join(PATIENCE_S)
        assert self._found, "it waits on"
        return self._found[0]


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Face]:
    with ExitStack() as stack:
        yield Face(request.param, tmp_path / "store", stack)


# --- each puts a job, has it moved, and leaves it waiting


def due(face: Face) -> Any:
    handle = face(face.queue().put, "job", delay=5)
    face.clock.advance(6)
    return handle


def due_with_priority(face: Face) -> Any:
    handle = face(face.queue().put, "job", delay=5, priority=7, headers={"a": "b"}, key="k")
    face.clock.advance(6)
    return handle


def rescheduled(face: Face) -> Any:
    handle = face(face.queue().put, "job", delay=500)
    assert face(face.queue().move, handle, delay=5)
    face.clock.advance(6)
    return handle


def set_aside(face: Face) -> Any:
    handle = face(face.queue().put, "job")
    assert face(face.take().nack, "not yet", delay=5)
    face.clock.advance(6)
    return handle


def due_and_set_aside(face: Face) -> Any:
    handle = due(face)
    assert face(face.take().nack, "not yet", delay=5)
    face.clock.advance(6)
    return handle


def released(face: Face) -> Any:
    handle = due_with_priority(face)
    assert face(face.take().release)
    return handle


def redriven(face: Face) -> Any:
    handle = face(face.queue().put, "job")
    assert face(face.take().fail, "no")
    face.redrive()
    return handle


def due_and_redriven_twice(face: Face) -> Any:
    handle = due_with_priority(face)
    for _ in range(2):
        assert face(face.take().fail, "no")
        assert face.outcome(handle) == face.outcome(handle, None) == "JobFailed"
        face.redrive()
    return handle


MOVES: list[Callable[[Face], Any]] = [
    *(due, due_with_priority, rescheduled, set_aside, due_and_set_aside, released, redriven),
    due_and_redriven_twice,
]


@pytest.fixture(params=MOVES, ids=lambda move: move.__name__)
def move(request: pytest.FixtureRequest) -> Callable[[Face], Any]:
    found: Callable[[Face], Any] = request.param
    return found


def test_every_end(face: Face, move: Callable[[Face], Any]) -> None:
    handle = move(face)
    assert face.outcome(handle) == "ResultLate"
    asking = Asking(face, handle)
    assert face(face.take().ack, result="fine", ttl=60)
    assert asking.found == face.outcome(handle) == "result fine"
    face.clock.advance(61)
    assert face.outcome(handle) == face.outcome(handle, None) == "NoResult"

    handle = move(face)
    asking = Asking(face, handle)
    assert face(face.take().ack)
    assert asking.found == "NoResult"
    assert face.outcome(handle) == face.outcome(handle, None) == "NoResult"

    handle = move(face)
    asking = Asking(face, handle)
    assert face(face.take().fail, "no")
    assert asking.found == "JobFailed"
    assert face.outcome(handle) == face.outcome(handle, None) == "JobFailed"
    face.redrive()
    assert face.outcome(handle) == "ResultLate"
    asking = Asking(face, handle)
    assert face(face.take().ack, result=1)
    assert asking.found == "result 1"


@pytest.mark.parametrize("face", ["embedded threads", "shared asyncio"], indirect=True)
def test_after_a_restart(face: Face, move: Callable[[Face], Any]) -> None:
    handle = move(face)
    face.restart()
    assert face.outcome(handle) == "ResultLate"
    assert face(face.take().ack, result="fine", ttl=60)
    face.restart()
    assert face.outcome(handle) == "result fine"
    face.clock.advance(61)
    assert face.outcome(handle) == "NoResult"

    handle = move(face)
    assert face(face.take().ack)
    face.restart()
    assert face.outcome(handle) == "NoResult"

    handle = move(face)
    assert face(face.take().fail, "no")
    face.restart()
    assert face.outcome(handle) == "JobFailed"
    face.redrive()
    face.restart()
    assert face.outcome(handle) == "ResultLate"
    assert face(face.take().ack)
    assert face.outcome(handle) == "NoResult"


def test_jobs_that_end_together(face: Face) -> None:
    handles = [due(face) for _ in range(4)]
    asking = [Asking(face, handle, parks) for parks, handle in enumerate(handles, 1)]

    async def consumed() -> None:
        async for job in face.queue().consume("anna", batch=10, block=0):
            async with job:
                pass

    if inspect.iscoroutinefunction(face.queue().put):
        face(consumed)
    else:
        for job in face.queue().consume("anna", batch=10, block=0):
            with job:
                pass
    assert [each.found for each in asking] == ["NoResult"] * 4


def test_an_end_with_the_next_job(face: Face) -> None:
    asking = Asking(face, due(face))
    assert face(face.take().done_and, face.queue().new("next"))
    assert asking.found == "NoResult"


def test_a_delayed_job_that_is_cancelled(face: Face) -> None:
    handle = face(face.queue().put, "job", delay=5)
    assert face.outcome(handle) == "ResultLate"
    asking = Asking(face, handle)
    assert face(face.queue().cancel, handle)
    assert asking.found == "NoResult"
    face.restart()
    assert face.outcome(handle) == face.outcome(handle, None) == "NoResult"


def test_jobs_that_are_purged(face: Face) -> None:
    waiting, delayed = due(face), face(face.queue().put, "job", delay=5)
    asking = [Asking(face, waiting), Asking(face, delayed, 2)]
    assert face(face.queue().purge) == 2
    assert [each.found for each in asking] == ["NoResult"] * 2
    assert face.outcome(waiting) == face.outcome(delayed) == "NoResult"


def test_a_job_that_is_too_old(face: Face) -> None:
    handle = face(face.queue().put, "job", delay=5, ttl=5)
    asking = Asking(face, handle)
    face.clock.advance(11)
    assert face(face.queue().get, "anna", block=0) is None
    assert asking.found == face.outcome(handle) == "JobFailed"
    face.redrive()
    assert face.outcome(handle) == "ResultLate"


def test_finished_jobs_that_are_kept(face: Face) -> None:
    handle = due(face)
    assert face(face.take(keep=9).fail, "no")
    face.redrive()
    assert face.outcome(handle, keep=9) == "ResultLate"
    assert face(face.take(keep=9).ack)
    assert face.outcome(handle, keep=9) == "NoResult"
    first = face(face.queue(keep=9).put, "job")
    assert face(face.take(keep=9).fail, "no")
    face.redrive()
    assert face.outcome(first, keep=9) == "ResultLate"
    assert face(face.take(keep=9).ack)
    assert face.outcome(first, keep=9) == "NoResult"


def test_each_group_asks_for_its_own_work(face: Face) -> None:
    groups = ["one", "two"]
    for group in groups:
        assert face(face.queue(group=group).get, "anna", block=0) is None
    handle = due(face)
    for group in groups:
        assert face.outcome(handle, group=group) == "ResultLate"
        assert face(face.take(group=group).ack)
        assert face.outcome(handle, group=group) == "NoResult"
    assert face.notes == 0


def test_notes_go_with_the_jobs(face: Face) -> None:
    plain = [face(face.queue().put, "job") for _ in range(3)]
    for _ in plain:
        assert face(face.take().ack)
    assert [face.outcome(handle) for handle in plain] == ["NoResult"] * 3
    assert face.notes == 0
    handles = [face(face.queue().put, "job", delay=5) for _ in range(3)]
    assert face.outcome(handles[0]) == "ResultLate" and face.notes == 0  # it has its first ID
    face.clock.advance(6)
    jobs = [face.take() for _ in handles]
    assert face.outcome(handles[0]) == "ResultLate" and face.notes == 3
    for job in jobs:
        assert face(job.ack)
    assert face(face.queue().put, "next")
    assert face(face.take().ack)  # the end of a job drops the notes of the unit before
    assert face.notes <= 1
    assert [face.outcome(handle) for handle in handles] == ["NoResult"] * 3
    assert face.notes == 0


def test_an_id_that_no_put_has_returned(face: Face) -> None:
    handle = due(face)
    assert face.outcome(f"{handle}1") == face.outcome("1-1") == "NoResult"


@pytest.mark.parametrize("backend", ["embedded", "shared"])
def test_notes_are_made_page_by_page(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other callers get the lock in between. The clock goes on, since each page is a timer."""
    monkeypatch.setattr(origins, "PAGE", 10)
    with ExitStack() as stack:
        db = stack.enter_context(tidelog.open(tmp_path / "store", fsync="no"))
        store: Any = db
        if backend == "shared":
            stack.enter_context(tidelog.serve(db, port=0))
            store = stack.enter_context(tidelog.connect(tmp_path / "store"))
        queue = store.queue("q", **OPTIONS)
        queue.put_many(range(1_000))
        queue.put_many(range(500), delay=0.001)
        handle = queue.put("last", delay=0.001, priority=3)
        until(lambda: queue.stats().scheduled == 0, "jobs are not due")
        job = queue.get("anna", block=0)
        assert job is not None and job.value == "last" and job.origin == handle
        with pytest.raises(tidelog.ResultLate):
            queue.result(handle, 0)
        assert job.ack()
        with pytest.raises(tidelog.NoResult):
            queue.result(handle, 0)
        assert len(leases_of(inside.core(db)).results[0, b"q"].origins) == 500
        with pytest.raises(tidelog.NoResult):
            queue.result(handle)
