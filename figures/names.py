"""Names: the streams of a queue by their keys, and which streams are helpers that no view shows as the user's.

A queue `mails` has its jobs in `mails`, and those of a priority in the lane `mails:priority:1` to `mails:priority:9`.
Each of these streams has its own `:holds`. All share `mails:failures`, `mails:dead`, `mails:cancels` and `mails:later`,
and the results, the strings `mails:result:<id>`. The schedules of a database are in `tidelog:schedules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.jobs.names import CANCELS as CANCELS
from tidelog.jobs.names import DEAD as DEAD
from tidelog.jobs.names import FAILURES as FAILURES
from tidelog.jobs.names import HELPERS as HELPERS
from tidelog.jobs.names import HOLDS as HOLDS
from tidelog.jobs.names import LANES as LANES
from tidelog.jobs.names import LATER as LATER
from tidelog.jobs.names import NOTES as NOTES
from tidelog.jobs.names import is_job as is_job
from tidelog.jobs.names import is_lane as is_lane
from tidelog.jobs.names import owner_of as owner_of
from tidelog.jobs.names import queue_of as queue_of
from tidelog.jobs.options import SCHEDULES as SCHEDULES
from tidelog.jobs.work.later import FIRST_SEQ as FIRST_SEQ
from tidelog.jobs.work.later import GROUP, SHIFT_MS
from tidelog.jobs.work.later import has_due_times as has_due_times

DUE: Final = GROUP
# By the ending of a helper's key: fields that each of its entries has.
_FIELDS: Final = {
    HOLDS: {b"group", b"job", b"until"},
    FAILURES: {b"group", b"job", b"worker"},
    DEAD: {b"deliveries", b"reason"},
    CANCELS: {b"deliveries", b"reason"},
}


class QueueStreams:
    """The keys of the queue to which a key belongs.

    jobs    of the jobs that are due, the lanes of priorities included
    later   of the delayed jobs
    notes   of what the queue notes about jobs
    """

    def __init__(self, key: bytes) -> None:
        self.name = queue_of(key).removesuffix(LATER)
        name = self.name
        self.jobs = frozenset(jobs_of(name))
        self.later = name + LATER
        self.dead = name + DEAD
        self.cancels = name + CANCELS
        self.failures = name + FAILURES
        holds = (jobs + HOLDS for jobs in self.jobs)
        self.notes = frozenset((self.failures, self.dead, self.cancels, *holds))
        self.all = self.jobs | self.notes | {self.later}

    def result(self, first: bytes) -> bytes:
        """The key of the result of a job, by the ID that `put` returned."""
        return self.name + b":result:" + first


def jobs_of(key: bytes) -> list[bytes]:
    """The keys of the streams that hold the jobs of a queue: lane 0, then the lanes of the priorities 1 to 9."""
    return [key, *(key + lane for lane in LANES)]


def is_helper(key: bytes, first: Sequence[bytes] | None, there: bool) -> bool:
    """Whether a stream is one that queues keep for themselves.

    A user's stream may have such a name, so its first entry decides.

    first    the fields of the stream's first entry; None if it has none
    there    whether the queue's own stream exists; decides about an empty stream
    """
    if key == SCHEDULES:
        return True
    if not key.endswith(HELPERS):
        return False
    if not first:
        return there
    for suffix, fields in _FIELDS.items():
        if key.endswith(suffix):
            return fields <= {*first[::2]}
    return is_job(first)


def due_ms(time: int) -> int:
    """When the job or the tick is due whose time of delivery is `time`, both unix ms."""
    return time + SHIFT_MS
