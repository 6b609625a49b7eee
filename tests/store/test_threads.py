"""Work of an event loop in a thread: its result or its exception comes back, whatever that is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tidelog.aof.errors import NoThread
from tidelog.store.threads import in_thread


def run(work: Callable[[], object]) -> object:
    async def go() -> object:
        async with asyncio.timeout(60):
            return await in_thread(work, "try it", "tidelog-test")

    return asyncio.run(go())


def test_the_result_comes_back_from_a_daemon_thread() -> None:
    assert run(lambda: threading.current_thread().name) == "tidelog-test"
    assert run(lambda: threading.current_thread().daemon) is True


def fail(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), MemoryError()])
def test_an_exception_comes_back(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(lambda: fail(error))


def test_no_future_takes_a_stop_iteration() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(lambda: next(iter(())))


def test_work_that_ends_after_its_loop() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        assert go.wait(60)
        done.set()

    async def begin() -> None:
        in_thread(work, "try it", "tidelog-test").cancel()

    asyncio.run(begin())
    go.set()
    assert done.wait(60)


def test_a_system_that_gives_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoThread, match="try it"):
        run(lambda: None)
