"""Limits of time: how long a handler may work on a job, and what a job fails by that its worker did not end.

A limit is of a queue, or of one job. That of a job is the field `time_limit` of its row, in ms. The run of workers
(api/queue/running/) keeps it; nothing of it is decided under the store's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.jobs.rows import TIME_LIMIT, fields_of
from tidelog.store.errors import TidelogError

_DIGITS_MAX: Final = 18
HALF: Final = "half of the workers of the queue %r hang beyond their limits of time"


class TimeLimitExceeded(TimeoutError):
    """A handler worked on a job for longer than its limit of time. The delivery of the job has failed by it.

    A retry policy may name it, in `on` or `never`. An async handler sees a cancellation instead.
    """


class WorkersHang(TidelogError):
    """Half of the workers of a run hang.

    They worked on jobs for longer than their limits of time, and could not be stopped. The run has ended in order. End
    the process, too, since they go on in it, and start it again.
    """


def exceeded(limit: float, kind: type[TimeLimitExceeded] = TimeLimitExceeded) -> TimeLimitExceeded:
    """The error of a job whose handler worked for longer than this, in seconds."""
    return kind(f"the handler worked for more than {limit:g} s")


class ProcessDied(Exception):
    """The process that worked on a job ended before the job did: it was killed, or its handler ended it."""


def time_limit_of(row: Sequence[bytes]) -> float | None:
    """A job's own limit of time in seconds; None if it has none, or no valid one."""
    if TIME_LIMIT not in row:
        return None
    found = fields_of(row).get(TIME_LIMIT, b"")
    valid = len(found) <= _DIGITS_MAX and found.isdigit() and int(found) > 0
    return int(found) / 1000 if valid else None
