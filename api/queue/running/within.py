"""Within: the task of an async handler gets so long, and is then cancelled. The cancellation is the run's own: the job
fails by TimeLimitExceeded, and the worker goes on.
"""

from __future__ import annotations

import asyncio
import time
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

from tidelog.jobs.time_limits import exceeded

T = TypeVar("T")
GRACE_SECONDS: Final = 1.0  # for handlers that were cancelled


async def within(task: asyncio.Task[T], job: Any, limit: float) -> T:
    """The result of a task that works on a job. If this call is cancelled, so is the task.

    Raises TimeLimitExceeded, after a cancellation of the task, which may run on after `GRACE_SECONDS`; and
    CancelledError if the task ends by a cancellation that came from elsewhere.
    """
    until = time.monotonic() + limit
    try:
        while not task.done() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({task}, timeout=left)
            until = max(until, job.extended_until or until)
    except asyncio.CancelledError:  # sent to the worker
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            raise
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_SECONDS)
    raise exceeded(limit) from _place(task)


def _place(task: asyncio.Task[Any]) -> BaseException | None:
    """The cancellation of a task, which has the place where it was, or is."""
    if not task.done():
        frames: list[FrameType] = []
        waits: Any = task.get_coro()
        while (frame := getattr(waits, "cr_frame", None)) is not None:
            frames.append(frame)
            waits = waits.cr_await
        trace = None
        for frame in reversed(frames):
            trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        return asyncio.CancelledError("it runs on here").with_traceback(trace)
    try:
        task.result()
    except asyncio.CancelledError as error:
        return error
    return None
