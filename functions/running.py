"""Running: the options of a run of tasks. They travel whole: from `Tasks.run` and `tidelog worker MODULE` to the run of
the queues, and to the processes that work for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self, TypedDict

from tidelog.api.queue.running.middleware import AsyncMiddleware, Middleware
from tidelog.jobs.rows import DeadJob
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError
from tidelog.store.lifetime import DRAIN_SECONDS

# The options of `Queue.run` that a run of tasks does not have.
LEFT_OUT: Final = {
    "batch": "workers of tasks take turns between queues, so they take one job at a time",
    "results": "a task says itself whether its result is kept: tasks.task(results=...)",
}


class LoopArguments(TypedDict, total=False):
    """The options of `Tasks.arun`."""

    workers: int
    drain: Duration | None
    worker: str | None
    block: Duration | None
    time_limit: Duration | None
    on_dead: Callable[[DeadJob], object] | None
    on_retry: Callable[[Any, BaseException, float], object] | None
    on_done: Callable[[Any, Any], object] | None
    middleware: Sequence[Middleware | AsyncMiddleware]
    max_jobs: int | None
    max_memory: int | None


class RunArguments(LoopArguments, total=False):
    """The options of `Tasks.run`."""

    processes: int
    isolate: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of one run, with the names and defaults of `Queue.run`."""

    workers: int = 4
    drain: Duration | None = DRAIN_SECONDS
    worker: str | None = None
    block: Duration | None = None
    time_limit: Duration | None = None
    on_dead: Callable[[DeadJob], object] | None = None
    on_retry: Callable[[Any, BaseException, float], object] | None = None
    on_done: Callable[[Any, Any], object] | None = None
    middleware: Sequence[Middleware | AsyncMiddleware] = ()
    processes: int = 1
    isolate: str | None = None
    max_jobs: int | None = None
    max_memory: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those that a caller gives. Raises DataError for one of `LEFT_OUT`."""
        for name in LEFT_OUT.keys() & given.keys():
            raise DataError(f"{name} is no option of a run of tasks: {LEFT_OUT[name]}")
        return cls(**given)

    def arguments(self) -> dict[str, Any]:
        """As arguments of `Queue.run`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def of_loop(self) -> dict[str, Any]:
        """As arguments of `arun`. Raises DataError for an option that only `run` has."""
        given = self.arguments()
        for name in RunArguments.__annotations__.keys() - LoopArguments.__annotations__.keys():
            if given.pop(name) not in (1, None):
                raise DataError(f"{name} is an option of `Tasks.run` alone")
        return given
