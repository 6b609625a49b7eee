"""Drops: the log line of the first job of a queue that a worker of this process dropped without an end.

A loop that forgets the `with` block loses no job, but each one comes again when its lease ends, and at last it is dead.
Nothing else would say why. A drop is noticed wherever Python frees the job, so it is only noted there; the thread that
looks after leases tells it.
"""

from __future__ import annotations

import logging
from typing import Final

NAMES_MAX: Final = 1_000  # a program may use one queue per user

log = logging.getLogger("tidelog.queue")
_told: set[str] = set()


def tell_drop(queue: str, job: str) -> None:
    """Log that a worker dropped this job, if it is the first of the queue in this process."""
    if queue in _told or len(_told) >= NAMES_MAX:
        return
    _told.add(queue)
    log.warning(
        "queue %s: a worker dropped job %s without an end, so the job is delivered again when its lease ends, and this "
        "delivery counts. Work on each job in its block, `with job:` (`async with` in a task), or end it by job.ack(), "
        "job.nack(reason) or job.release(). Later drops of this queue are not logged",
        *(queue, job),
        extra={"queue": queue, "job": job},
    )
