"""The types of the decorators of `Tasks`, and of the options that they take."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, overload

from tidelog.functions.task import C, P, R, Task, TaskOptions


class Maker(Protocol):
    """The decorator that `tasks.task(...)` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Scheduler(Protocol):
    """The decorator that `tasks.cron(...)` returns, of a task, or of a function, which it makes a task."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, task: Task[P, C, R], /) -> Task[P, C, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class TaskArguments(TaskOptions, total=False):
    """The arguments of `tasks.task`: the options of a put, and these.

    queue      the name of its queue; "default" without it
    name       its name in jobs; that of the function without it
    results    whether what the function returns is kept: False = never, True = None too, None = unless it is None
    """

    queue: str
    name: str | None
    results: bool | None
