"""Deaths: the log line of each job that becomes a dead job, at ERROR, for the people who run the workers.

A decision is made under the store's lock, and may still fail. So it notes the entry of the dead job, and the caller
tells it after the unit has landed, outside the lock: handlers of `logging` may be slow, or use the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidelog.engine.api import EntryRow
from tidelog.jobs.options import Options
from tidelog.jobs.rows import DeadJob

log = logging.getLogger("tidelog.queue")


def tell(options: Options, dead: Iterable[EntryRow]) -> None:
    """Log these new entries of `<name>:dead`, one line each.

    Each record has the fields `queue`, `job` (its ID), `attempts` and `reason`, for structured logs.
    """
    for row in dead:
        job = DeadJob(0, row, options.codec, options.name)
        reason = " ".join(job.reason.split())
        log.error(
            "queue %s: job %s is dead: %s (%s)",
            *(options.name, job.original_id, reason, times(job.deliveries)),
            extra={
                "queue": options.name,
                "job": job.original_id,
                "attempts": job.deliveries,
                "reason": reason,
            },
        )


def times(deliveries: int) -> str:
    """A number of deliveries in words: `1 delivery`."""
    return f"{deliveries:,} deliver{'y' if deliveries == 1 else 'ies'}"


def given_up(deliveries: int, why: str) -> str:
    """The reason of a job that was delivered too often."""
    return f"given up after {times(deliveries)}{why}"
