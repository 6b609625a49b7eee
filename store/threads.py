"""Runs work of an event loop in a thread of its own.

The threads are daemons: neither the loop nor the end of the process waits for them. asyncio's own threads would hold up
both.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start

T = TypeVar("T")


def in_thread(
    work: Callable[[], T],
    purpose: str,
    name: str,
    refused: Callable[[NoThread], Exception] = lambda error: error,
) -> asyncio.Future[T]:
    """Run `work` in a new daemon thread. Called in the loop's thread. Cancelling the future does not stop the work.

    purpose   for the error, if the system gives no thread
    name      of the thread
    refused   the future's error then, made of the NoThread. So a caller that adds a callback has one way to fail
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(failure: BaseException | None, found: list[T]) -> None:
        if future.done():
            return  # cancelled: no caller waits
        if failure is None:
            future.set_result(found[0])
        elif isinstance(failure, StopIteration):
            future.set_exception(RuntimeError(repr(failure)))  # no future takes a StopIteration
        else:
            future.set_exception(failure)

    def run() -> None:
        failure: BaseException | None = None
        found: list[T] = []
        try:
            found.append(work())
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, failure, found)
        except RuntimeError:
            pass  # the loop has ended

    try:
        start(threading.Thread(target=run, name=name, daemon=True), purpose)
    except NoThread as error:
        future.set_exception(refused(error))
    return future


def seen(future: asyncio.Future[Any]) -> None:
    """A callback for a future that nobody waits for: asyncio would log its error."""
    if not future.cancelled():
        future.exception()
