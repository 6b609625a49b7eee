"""Middleware: functions around the handler of a run, the first one outermost.

    def timing(job, next):
        began = time.monotonic()
        result = next(job)                      # the next middleware, or the handler
        print(job.id, time.monotonic() - began)
        return result

    mails.run(send, middleware=[timing])

A handler with middleware is one object that can be called with a job. Its parts alone decide whether another process
can import it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Protocol

from tidelog.store.errors import CalledTwice


class Next(Protocol):
    """The second argument of a middleware: the rest of the way to the handler, and the handler."""

    def __call__(self, job: Any, /) -> Any:
        """Call it once, with the job. Returns what the next middleware or the handler returns; raises what it raises.

        Raises:
            CalledTwice: It was called before. The handler is not called again.
        """


class Middleware(Protocol):
    """A function around the handler of `Queue.run`. It is called in the thread of the worker.

    Its return value is the result. If it does not call `next`, the handler is not called, and the job is done. If it
    raises, the job has failed: `RetryJob` and `GiveUp` say how, as in a handler. Context variables that it sets are set
    for this job only.
    """

    def __call__(self, job: Any, next: Next, /) -> object:
        """Return the result."""


class AsyncNext(Protocol):
    """As `Next`, for asyncio: `await next(job)`."""

    def __call__(self, job: Any, /) -> Awaitable[Any]:
        """As `Next.__call__`.

        Raises:
            CalledTwice: It was called before.
        """


class AsyncMiddleware(Protocol):
    """An async function around the handler of `AsyncQueue.arun`. As `Middleware`, in the task of the handler."""

    def __call__(self, job: Any, next: AsyncNext, /) -> Awaitable[object]:
        """Return the result."""


def chained(handler: Any, around: tuple[Any, ...], *, asynchronous: bool) -> Callable[[Any], Any]:
    """The handler with middleware around it."""
    if not around:
        found: Callable[[Any], Any] = handler
        return found
    return (AsyncChain if asynchronous else Chain)(handler, around)


def innermost(handler: Any) -> Any:
    """The handler without its middleware."""
    return handler.handler if isinstance(handler, Chain | AsyncChain) else handler


def parts_of(handler: Any) -> list[tuple[str, Any]]:
    """The handler and each middleware around it, with the word for it."""
    found: list[tuple[str, Any]] = [("handler", innermost(handler))]
    if isinstance(handler, Chain | AsyncChain):
        found += [("middleware", each) for each in handler.around]
    return found


@dataclass(frozen=True, slots=True)
class Chain:
    """A handler with middleware around it."""

    handler: Callable[[Any], Any]
    around: tuple[Middleware, ...]

    def __call__(self, job: Any) -> Any:
        return copy_context().run(self.go, 0, job)

    def go(self, place: int, job: Any) -> Any:
        """Call the middleware at a place, or the handler behind the last one."""
        if place == len(self.around):
            return self.handler(job)
        begun = False

        def next(job: Any, /) -> Any:
            nonlocal begun
            if begun:
                raise called_twice(self.around[place])
            begun = True
            return self.go(place + 1, job)

        return self.around[place](job, next)


@dataclass(frozen=True, slots=True)
class AsyncChain:
    """As `Chain`, for asyncio. The task of the handler has a context of its own."""

    handler: Callable[[Any], Awaitable[Any]]
    around: tuple[AsyncMiddleware, ...]

    async def __call__(self, job: Any) -> Any:
        return await self.go(0, job)

    async def go(self, place: int, job: Any) -> Any:
        """Call the middleware at a place, or the handler behind the last one."""
        if place == len(self.around):
            return await self.handler(job)
        begun = False

        async def next(job: Any, /) -> Any:
            nonlocal begun
            if begun:
                raise called_twice(self.around[place])
            begun = True
            return await self.go(place + 1, job)

        return await self.around[place](job, next)


def called_twice(middleware: Any) -> CalledTwice:
    """The error of a second call of `next`."""
    name = getattr(middleware, "__qualname__", repr(middleware))
    return CalledTwice(f"the middleware {name} called next a second time for one job")


# --- the log line of each job, at level DEBUG

log = logging.getLogger("tidelog.worker")


@dataclass(frozen=True, slots=True)
class Timed:
    """A middleware that logs how long each job of a queue took."""

    queue: str

    def __call__(self, job: Any, next: Next, /) -> Any:
        began = time.monotonic()
        try:
            return next(job)
        finally:
            self.say(job, began)

    def say(self, job: Any, began: float) -> None:
        """Log it."""
        took = time.monotonic() - began
        log.debug(
            "queue %s: %s job %s took %.3f s",
            *(self.queue, job.worker, job.id, took),
            extra={"queue": self.queue, "worker": job.worker, "job": job.id, "seconds": took},
        )


class TimedTask(Timed):
    """The same for asyncio."""

    __slots__ = ()

    async def __call__(self, job: Any, next: AsyncNext, /) -> Any:
        began = time.monotonic()
        try:
            return await next(job)
        finally:
            self.say(job, began)
