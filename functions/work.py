"""Work: a worker calls the function that a job names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final

from tidelog.functions.errors import Changed, Unfit
from tidelog.functions.task import Task
from tidelog.jobs.codecs import Codec
from tidelog.jobs.retries import GiveUp
from tidelog.store.threads import in_thread

RESULT_BYTES_MAX: Final = 1_000_000
# In the value of a schedule's job, whose place a job with all options of the task takes.
TICK: Final = "tick"
working: Final[ContextVar[Any]] = ContextVar("working")
"""The job that is worked on."""


class Work:
    """The handlers of the jobs of a store's tasks.

    tasks    by their names
    codec    of their queues
    finish   runs the coroutine of an async function, for threads
    """

    finish: Callable[[Coroutine[Any, Any, Any]], Any] = staticmethod(asyncio.run)

    def __init__(self, tasks: Mapping[str, Task[Any, Any, Any]], codec: Codec) -> None:
        self._tasks, self._codec = tasks, codec

    def handle(self, job: Any) -> None:
        """Call the function of a job, and keep what it returns. Raises GiveUp if no retry would help."""
        task = self._task(job.value)
        if TICK in job.value:
            job.done_and(task.ticked(job.value))
            return
        args, kwargs = self._arguments(task, job.value)
        token = working.set(job)
        try:
            found = task.function(*args, **kwargs)
            if task.is_async:  # a test does this; `Tasks.run` begins a loop instead
                found = self.finish(found)
        finally:
            working.reset(token)
        if self._keeps(task, found) and job.state == "open":
            job.ack(self._kept(task, found))

    async def ahandle(self, job: Any) -> None:
        """The same, for asyncio. A function that is not async runs in a thread."""
        task = self._task(job.value)
        if TICK in job.value:
            await job.done_and(task.ticked(job.value))
            return
        args, kwargs = self._arguments(task, job.value)
        token = working.set(job)
        try:
            if task.is_async:
                found = await task.function(*args, **kwargs)
            else:
                run = partial(copy_context().run, task.function, *args, **kwargs)
                found = await in_thread(run, "run a task", "tidelog-task")
        finally:
            working.reset(token)
        if self._keeps(task, found) and job.state == "open":
            await job.ack(self._kept(task, found))

    def _task(self, value: Any) -> Task[Any, Any, Any]:
        """The task of a job. Raises GiveUp."""
        name = value.get("task") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise GiveUp("the job calls no task: it was not put by one")
        found = self._tasks.get(name)
        if found is None:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise GiveUp(f"there is no task {name!r} here; those that there are: {known}")
        return found

    def _arguments(self, task: Task[Any, Any, Any], value: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call. Raises GiveUp."""
        try:
            return task.calls.unpack(value.get("args"))
        except Changed as error:
            raise GiveUp(str(error)) from error.__cause__

    @staticmethod
    def _keeps(task: Task[Any, Any, Any], found: Any) -> bool:
        """Whether a result is kept."""
        return found is not None if task.results is None else task.results

    def _kept(self, task: Task[Any, Any, Any], found: Any) -> Any:
        """A result, as the queue keeps it. Raises GiveUp: to retry would do the work once more."""
        try:
            packed = task.calls.result.pack(found)
            size = len(self._codec.encode(packed))
        except (Unfit, ValueError, TypeError, OverflowError) as error:
            said = f"it {error}" if isinstance(error, Unfit) else str(error)
            raise GiveUp(f"what task {task.name} returned cannot be kept: {said}") from None
        if size > RESULT_BYTES_MAX:
            raise GiveUp(
                f"what task {task.name} returned has {size:,} bytes, and a result may have {RESULT_BYTES_MAX:,}: let "
                "the function store it elsewhere, and return its place"
            )
        return packed
