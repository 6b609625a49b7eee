"""The queue of a job, for any face."""

from __future__ import annotations

from typing import Any


def queue_of(job: Any) -> Any:
    """The queue that a job came from: an object with `name` and `group`."""
    # an asyncio job of a shared store has one for threads inside
    shared = getattr(job, "_job", job)
    return shared._queue
