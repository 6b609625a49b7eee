"""Blocks: a task in the `async with` block of a job, which a cancel of the job ends.

The task gets a CancelledError at its next await, which the end of the block takes back. So it ends the job, and not the
worker. It goes on as it came if the task was cancelled by others as well.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import ref

CANCELLED: Final = "tidelog: the job was cancelled"  # the message of the CancelledError


class Block:
    """The running task in the block of a job. To be called, in any thread, when the job is cancelled."""

    __slots__ = ("_task", "_before", "_sent", "_over")

    def __init__(self) -> None:
        task = asyncio.current_task()
        # Weak: a task that nobody refers to any more drops the job.
        self._task = None if task is None else ref(task)
        self._before = 0 if task is None else task.cancelling()
        self._sent = self._over = False

    def __call__(self) -> None:
        task = None if self._task is None else self._task()
        if task is not None:
            try:
                task.get_loop().call_soon_threadsafe(self._cancel)
            except RuntimeError:
                pass  # the loop is closed

    def _cancel(self) -> None:
        task = None if self._task is None else self._task()
        if not self._over and task is not None:
            self._sent = True
            task.cancel(CANCELLED)

    def leave(self, error: BaseException | None) -> bool:
        """The block ends. Returns whether this error is the cancellation that it sent, and the only one."""
        self._over = True
        task = self._task() if self._sent and self._task is not None else None
        if task is None:
            return False
        return task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError)
