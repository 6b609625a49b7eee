"""Callers of blocked reads that are tasks of an event loop. `callers.py` has the callers that are threads.

It imports asyncio, so only the asyncio faces import it.
"""

from __future__ import annotations

import asyncio
from threading import get_ident
from weakref import ref

from tidelog.store.commit.callers import Caller, Holder


def this_task() -> Holder:
    """The running task; in a callback of the loop, which has no task, the thread."""
    task = asyncio.current_task()
    return get_ident() if task is None else (get_ident(), ref(task))


class TaskCaller(Caller):
    """A waiting task of an event loop. The task makes it, in its loop.

    gone    set as soon as the task is cancelled, though the task runs and leaves only later
    """

    __slots__ = ("_loop", "_future", "_gone")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()
        super().__init__()

    @property
    def gone(self) -> bool:
        return self._gone or self._future.cancelled()

    @gone.setter
    def gone(self, gone: bool) -> None:
        self._gone = gone

    def nudge(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            pass  # the loop is closed; entries delivered to it stay pending, as after a crash

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def sleep(self, seconds: float | None) -> None:
        """Wait until nudged, or for `seconds`; None = for ever."""
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._future
        finally:
            if timer is not None:
                timer.cancel()
        self._future = self._loop.create_future()
        if self.done:
            self._wake()
