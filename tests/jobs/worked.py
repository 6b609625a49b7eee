"""Run handlers, hooks and middleware that are async functions through each face of a queue, threads included."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.client.faces.awaited import Awaited

Function = Callable[..., Awaitable[Any]]


def work(
    queue: Any, handler: Function, *, middleware: Sequence[Function] = (), **given: Any
) -> None:
    """Let a worker take jobs until none is due."""
    hooks = {name: given.pop(name) for name in ("on_retry", "on_done") if name in given}
    given = {"workers": 1, "block": 0, **given}
    if isinstance(queue, Awaited):
        queue.arun(handler, middleware=middleware, **hooks, **given)
        return
    hooks = {name: plain(hook) for name, hook in hooks.items()}
    queue.run(plain(handler), middleware=[*map(plain_middleware, middleware)], **hooks, **given)


def plain(function: Function) -> Callable[..., Any]:
    """An async function that waits for nothing, as one that is called."""

    def called(*given: Any) -> Any:
        return _result(function(*given))

    called.__qualname__ = getattr(function, "__qualname__", repr(function))
    return called


def plain_middleware(middleware: Function) -> Callable[[Any, Any], Any]:
    """The same for a middleware: its `next` is called, too."""

    def around(job: Any, next: Any) -> Any:
        async def awaited(job: Any) -> Any:
            return next(job)

        return _result(middleware(job, awaited))

    around.__qualname__ = getattr(middleware, "__qualname__", repr(middleware))
    return around


def _result(work: Any) -> Any:
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")
