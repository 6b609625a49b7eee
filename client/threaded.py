"""Threaded: a call of a shared store, in a thread of its own, for the faces of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tidelog.store.threads import in_thread

T = TypeVar("T")


def threaded(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run a call of a shared store in a new thread. Cancelling the future does not stop it.

    The future's error is NoThread if the system gives none.
    """
    return in_thread(work, "call a shared store", "tidelog-client")


def by_thread(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method that calls the one of this name of `self.remote`, in a thread."""

    async def call(self: Any, *given: Any) -> Any:
        return await threaded(partial(getattr(self.remote, name), *given))

    return call
