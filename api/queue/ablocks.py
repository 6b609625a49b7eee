"""Blocks: a task in the `async with` block of a job, which a cancel of the job ends.

The task gets a CancelledError at its next await, which the end of the block takes back. So it ends the job, and not the
worker. A task that others cancel as well, or that did not take back an earlier cancellation, is left to them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tidelog.store.commit.callers import Holder

CANCELLED: Final = "tidelog: the job was cancelled"  # the message of the CancelledError


class Sent:
    """In place of the holder of a block: its task was cancelled."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        task.cancel(CANCELLED)

    def is_all(self, error: BaseException | None) -> bool:
        """The block ends: take the cancellation back. Returns whether it is the error with which the block ends."""
        return self._task.uncancel() == 0 and isinstance(error, asyncio.CancelledError)


def end_block(blocks: dict[int, Any], job: int, holder: Holder) -> None:
    """Cancel the task that is in the block of a job, in any thread. `blocks`: by job, while the task is there."""
    task = None if isinstance(holder, int) else holder[1]()
    if task is None:
        return

    def cancel() -> None:
        if blocks.get(job) is holder and not task.cancelling():
            blocks[job] = Sent(task)

    try:
        task.get_loop().call_soon_threadsafe(cancel)
    except RuntimeError:
        pass  # the loop is closed
