"""Work: a worker calls the function that a job names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final

from tidelog.api.queue.running import preparing
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

    owner    the Tasks
    tasks    by their names
    codec    of their queues
    finish   runs the coroutine of an async function, for threads
    finder   returns this object in another process; None = the names of the functions lead to it
    through  in a process of a run: the store of its jobs, which the run has
    """

    finish: Callable[[Coroutine[Any, Any, Any]], Any] = staticmethod(asyncio.run)

    def __init__(self, owner: Any, tasks: Mapping[str, Task[Any, Any, Any]], codec: Codec) -> None:
        self.owner, self._tasks, self._codec = owner, tasks, codec
        self.finder: Callable[[], Work] | None = None
        self.through: Any = None
        self._isolated = False

    def __repr__(self) -> str:
        return f"the work of {self.owner!r}"

    def __reduce__(self) -> Any:
        return _found, (self.finder or partial(_of_tasks, *self._tasks.values()),)

    def isolate(self) -> None:
        """This process works for a run with `isolate="process"`."""
        self._isolated = True

    # --- for threads

    def handle(self, job: Any) -> Any:
        """Call the function of a job, and keep what it returns. Raises GiveUp if no retry would help."""
        task = self._task(job.value)
        found = self._called(task, job)
        return found if found is None and not task.results else self._kept(task, job, found)

    def call(self, job: Any) -> Any:
        """Call the function of a job: `handle` with `keep` around it."""
        return self._called(self._task(job.value), job)

    def keep(self, job: Any, next: Callable[[Any], Any]) -> Any:
        """The middleware around all others: keep what the function and they return."""
        found = next(job)
        return self._kept(self._task(job.value), job, found)

    def _called(self, task: Task[Any, Any, Any], job: Any) -> Any:
        if self._isolated:
            self.through = job.store
        if TICK in job.value:
            job.done_and(task.ticked(job.value))
            return None
        try:
            args, kwargs = task.calls.unpack(job.value.get("args"))
        except Changed as error:
            raise GiveUp(str(error)) from error.__cause__
        token = working.set(job)
        try:
            found = task.function(*args, **kwargs)
            if task.is_async:  # a test does this; `Tasks.run` begins a loop instead
                found = self.finish(found)
        finally:
            working.reset(token)
        return found

    def _kept(self, task: Task[Any, Any, Any], job: Any, found: Any) -> Any:
        if keeps(task, found) and job.state == "open":
            job.ack(self._packed(task, found))
        return found

    def told(self, on_done: Callable[[Any, Any], object], job: Any, raw: Any) -> None:
        """Call `on_done` with a result as another process has stored it."""
        on_done(job, None if raw is None else self._task(job.value).restored(raw))

    # --- for asyncio

    async def ahandle(self, job: Any) -> Any:
        """As `handle`. A function that is not async runs in a thread."""
        task = self._task(job.value)
        return await self._akept(task, job, await self._acalled(task, job))

    async def acall(self, job: Any) -> Any:
        """As `call`."""
        return await self._acalled(self._task(job.value), job)

    async def akeep(self, job: Any, next: Callable[[Any], Any]) -> Any:
        """As `keep`."""
        found = await next(job)
        return await self._akept(self._task(job.value), job, found)

    async def _acalled(self, task: Task[Any, Any, Any], job: Any) -> Any:
        if TICK in job.value:
            await job.done_and(task.ticked(job.value))
            return None
        try:
            args, kwargs = task.calls.unpack(job.value.get("args"))
        except Changed as error:
            raise GiveUp(str(error)) from error.__cause__
        token = working.set(job)
        try:
            if task.is_async:
                return await task.function(*args, **kwargs)
            run = partial(copy_context().run, task.function, *args, **kwargs)
            running = in_thread(run, "run a task", "tidelog-task")
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The thread runs on, and so does the task: a run counts those that hang.
                await asyncio.wait({running})
                raise
        finally:
            working.reset(token)

    async def _akept(self, task: Task[Any, Any, Any], job: Any, found: Any) -> Any:
        if keeps(task, found) and job.state == "open":
            await job.ack(self._packed(task, found))
        return found

    # --- for both

    def coroutines(self, queues: Collection[str]) -> list[str]:
        """The names of the async tasks of some queues."""
        tasks = self._tasks.values()
        return [task.name for task in tasks if task.queue in queues and task.is_async]

    def limited(self, queues: Collection[str]) -> list[str]:
        """The names of the tasks of some queues that have a limit of time, of their own or of their queue."""
        return [
            task.name
            for task in self._tasks.values()
            if task.queue in queues
            and (
                task.options.get("time_limit")
                or self.owner.options_of(task.queue).get("time_limit")
            )
        ]

    def _task(self, value: Any) -> Task[Any, Any, Any]:
        """The task of a job. Raises GiveUp."""
        try:
            return self._tasks[value["task"]]
        except (TypeError, LookupError):
            name = value.get("task") if isinstance(value, dict) else None
        if not isinstance(name, str):
            raise GiveUp("the job calls no task: it was not put by one")
        known = ", ".join(sorted(self._tasks)) or "none"
        raise GiveUp(f"there is no task {name!r} here; those that there are: {known}")

    def _packed(self, task: Task[Any, Any, Any], found: Any) -> Any:
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


def keeps(task: Task[Any, Any, Any], found: Any) -> bool:
    """Whether a result is kept."""
    return found is not None if task.results is None else task.results


def _of_tasks(*tasks: Task[Any, Any, Any]) -> Work:
    owner: Any = tasks[0].owner
    found: Work = owner.work
    return found


def _found(finder: Callable[[], Work]) -> Work:
    """The work of another process, in this one."""
    work = finder()
    if preparing.isolated:
        work.isolate()
    return work
