"""The queue of a job, for any face."""

from __future__ import annotations

from typing import Any


def queue_of(job: Any) -> Any:
    """The queue that a job came from: an object with `name` and `group`."""
    return job._options
