"""Steps: a test runs the jobs of tasks itself, in a temporary store: at once, or one by one.

    with testing.inline(tasks):
        send.put(to="ann")                  # calls the function, here

    with testing.stepwise(tasks) as steps:
        send.delay(60, to="ann")
        assert steps.run_all() == []
        steps.clock.advance(60)
        assert steps.run_all() == ["send"]

Arguments and results are stored and restored as in production, so a value that no job can hold is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tidelog.functions.order import order_of
from tidelog.functions.tasks import Tasks
from tidelog.store.clock import Clock as StoreClock
from tidelog.testing.clock import Clock
from tidelog.testing.stores import store


class Steps:
    """The jobs of tasks, for a test; `testing.inline` and `testing.stepwise` make it.

    Attributes:
        clock: The clock of the temporary store. Delays, retries and schedules wait until the test moves it.
    """

    def __init__(self, tasks: Tasks, clock: Any, reraise: bool) -> None:
        self.clock = clock
        self._tasks, self._reraise = tasks, reraise
        self._order = order_of(None, tasks.queues or ["default"])

    def run_one(self) -> str | None:
        """Run the job that comes next, as a worker does.

        Returns:
            The name of its task, or why it calls none; None if no job is due.

        Under `inline` an exception of the function leaves this call; `stepwise` only records it, for a retry.
        """
        empty: set[str] = set()
        while (name := self._next(empty)) is not None:
            for job in self._tasks.queue(name).consume(None, 1, 0, reraise=self._reraise):
                self._order.took(name, self._order.names)
                with job:
                    self._tasks.work.handle(job)
                return named(job)
            empty.add(name)
        return None

    def run_all(self) -> list[str]:
        """Run jobs until none is due, those too that they put.

        Returns:
            The names of their tasks, in order.

        Exceptions are as of `run_one`.
        """
        return list(iter(self.run_one, None))

    async def arun_one(self) -> str | None:
        """The same, for asyncio. Functions that are not async run in a thread."""
        empty: set[str] = set()
        while (name := self._next(empty)) is not None:
            queue = await self._tasks.aqueue(name)
            async for job in queue.consume(None, 1, 0, reraise=self._reraise):
                self._order.took(name, self._order.names)
                async with job:
                    await self._tasks.work.ahandle(job)
                return named(job)
            empty.add(name)
        return None

    async def arun_all(self) -> list[str]:
        """The same, for asyncio."""
        done = []
        while (name := await self.arun_one()) is not None:
            done.append(name)
        return done

    def _next(self, empty: set[str]) -> str | None:
        return self._order.next([name for name in self._order.names if name not in empty])


class _AtOnce:
    """Runs what a put has put."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def came(self) -> None:
        """A task was put."""
        self._steps.run_all()

    async def acame(self) -> None:
        """A task was put, for asyncio."""
        await self._steps.arun_all()


def named(job: Any) -> str:
    """The name of a job's task."""
    return str(job.value.get("task")) if isinstance(job.value, dict) else repr(job.value)


@contextmanager
def stepwise(
    tasks: Tasks, *, clock: StoreClock | None = None, reraise: bool = False
) -> Iterator[Steps]:
    """Let the test run jobs, in a temporary store in place of that of the tasks, which is not opened.

    Args:
        tasks: What `tidelog.tasks` returned, with its functions.
        clock: The clock of the store, such as a `testing.Clock` of others; None = one of its own, which stands at
            2026-01-01 UTC.
        reraise: Let an exception of a function leave the call that ran it, too, after it was recorded.

    Returns:
        To be used in `with`: the Steps.

    Raises:
        DataError: A schedule of the tasks is invalid.
    """
    used = Clock() if clock is None else clock
    work, opened = tasks.work.finish, tasks.replace_store(None)
    with store(used) as db:
        tasks.replace_store(db)
        tasks.work.finish = finished
        try:
            tasks.schedule()
            yield Steps(tasks, used, reraise)
        finally:
            tasks.work.finish = work
            tasks.replace_store(opened)


@contextmanager
def inline(tasks: Tasks, *, clock: StoreClock | None = None) -> Iterator[Steps]:
    """Let each put run its job at once, before it returns. An exception of the function leaves the put.

    Delayed jobs and retries wait for the clock, and for `Steps.run_all`.

    Args:
        tasks: As in `stepwise`.
        clock: As in `stepwise`.

    Returns:
        To be used in `with`: the Steps.
    """
    with stepwise(tasks, clock=clock, reraise=True) as steps:
        before, tasks.at_once = tasks.at_once, _AtOnce(steps)
        try:
            yield steps
        finally:
            tasks.at_once = before


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, also if this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
