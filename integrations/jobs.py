"""The queue of a job, for any face."""

from __future__ import annotations

from typing import Any


def queue_of(job: Any) -> Any:
    """The queue that a job came from: an object with `name` and `group`."""
    engine = getattr(job, "_engine", None)
    if engine is not None:  # the job of an open store
        return engine.options
    # an asyncio job of a shared store has one for threads inside
    return job._queue if hasattr(job, "_queue") else job._job._queue
