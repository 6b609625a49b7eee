"""The two ends that a block of a job can have by an exception: the job has failed, or its worker is to end."""

from __future__ import annotations

import sys


def ends_the_worker(error: BaseException) -> bool:
    """Whether an exception is about the worker, so that its job is given back and has not failed.

    KeyboardInterrupt is; GeneratorExit, of a generator with the block that is closed; and a cancellation that was sent
    to the task that holds the job. A CancelledError that nobody sent to that task is a fault of the handler, which
    awaited something that others cancelled. So is any other exception, of any class: SystemExit, a timeout
    of gevent, a panic of an extension.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return True
    asyncio = sys.modules.get("asyncio")  # not imported here: a program of threads does not load it
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0
