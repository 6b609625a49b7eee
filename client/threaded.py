"""Threaded: a call of a shared store, in a thread of its own, for the faces of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tidelog.store.threads import in_thread

T = TypeVar("T")


def threaded(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run a call of a shared store in a new thread. Cancelling the future does not stop it.

    The future's error is NoThread if the system gives none.
    """
    return in_thread(work, "call a shared store", "tidelog-client")
