"""`arun` of a queue for asyncio, open or shared, which lets tasks work on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from tidelog.api.queue.running.middleware import AsyncMiddleware
from tidelog.api.queue.running.plan import make_plan
from tidelog.api.queue.running.tasks import run_tasks
from tidelog.jobs.rows import DeadJob
from tidelog.store.durations import Duration
from tidelog.store.lifetime import DRAIN_SECONDS

J = TypeVar("J")


class RunsTasks(Generic[J]):
    """A queue for asyncio. J: the class of its jobs."""

    _backend: Any

    async def arun(
        self,
        handler: Callable[[J], Awaitable[object]],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
        on_dead: Callable[[DeadJob], object] | None = None,
        on_retry: Callable[[J, BaseException, float], object] | None = None,
        on_done: Callable[[J, Any], object] | None = None,
        middleware: Sequence[AsyncMiddleware] = (),
        max_jobs: int | None = None,
        max_memory: int | None = None,
    ) -> int:
        """Let tasks take jobs, until SIGTERM or Ctrl-C comes. As `Queue.run`.

        The handler is an async function. One that works for longer than its limit of time is cancelled, and its job
        fails by TimeLimitExceeded. The handlers that run when the drain is over are cancelled. If this call is
        cancelled, they are cancelled at once. `on_dead`, `on_retry` and `on_done` are called in the loop, and may be
        async functions. Each of `middleware` is an async function.
        """
        return await run_tasks(
            make_plan(
                *(self, handler, workers, drain),
                asynchronous=True,
                backend=self._backend,
                worker=worker,
                batch=batch,
                block=block,
                time_limit=time_limit,
                results=results,
                on_dead=on_dead,
                on_retry=on_retry,
                on_done=on_done,
                middleware=middleware,
                max_jobs=max_jobs,
                max_memory=max_memory,
            )
        )
