"""Names: the streams of a queue by their keys, and which streams are helpers that no view shows as the user's.

A queue `mails` has its jobs in `mails`, and those of a priority in the lane `mails:priority:1` to `mails:priority:9`.
Each of these streams has its own `:holds`. All share `mails:failures`, `mails:dead` and `mails:later`, and the results,
the strings `mails:result:<id>`. The schedules of a database are in `tidelog:schedules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidelog.jobs import rows
from tidelog.jobs.options import LANES as LANE_NAMES
from tidelog.jobs.options import SCHEDULES as SCHEDULES
from tidelog.jobs.options import SUFFIXES
from tidelog.jobs.work.later import FIRST_SEQ as FIRST_SEQ
from tidelog.jobs.work.later import GROUP, SHIFT_MS
from tidelog.jobs.work.later import has_due_times as has_due_times

HOLDS, FAILURES, DEAD, LATER = NOTES = tuple(suffix.encode() for suffix in SUFFIXES)
LANES: Final = tuple(lane.encode() for lane in LANE_NAMES)
HELPERS: Final = (*NOTES, *LANES)
DUE: Final = GROUP
_LANE: Final = re.compile(rb":priority:[1-9]\Z")
# By the ending of a helper's key: fields that each of its entries has.
_FIELDS: Final = {
    HOLDS: {b"group", b"job", b"until"},
    FAILURES: {b"group", b"job", b"worker"},
    DEAD: {b"deliveries", b"reason"},
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
        self.failures = name + FAILURES
        self.notes = frozenset((self.failures, self.dead, *(jobs + HOLDS for jobs in self.jobs)))
        self.all = self.jobs | self.notes | {self.later}

    def result(self, first: bytes) -> bytes:
        """The key of the result of a job, by the ID that `put` returned."""
        return self.name + b":result:" + first


def jobs_of(key: bytes) -> list[bytes]:
    """The keys of the streams that hold the jobs of a queue: lane 0, then the lanes of the priorities 1 to 9."""
    return [key, *(key + lane for lane in LANES)]


def is_lane(key: bytes) -> bool:
    """Whether a key is that of the jobs of one priority."""
    return _LANE.search(key) is not None


def queue_of(key: bytes) -> bytes:
    """The key of the queue to which a lane belongs; any other key as it is."""
    return _LANE.sub(b"", key)


def owner_of(key: bytes) -> bytes | None:
    """The key of the queue that a helper stream would belong to, by its name; None for a name of no helper."""
    if not key.endswith(HELPERS):
        return None
    for suffix in NOTES:
        if key.endswith(suffix):
            return queue_of(key.removesuffix(suffix))
    return queue_of(key)


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


def is_job(row: Sequence[bytes]) -> bool:
    """Whether a row is that of a job."""
    return bool(row) and row[0] == rows.VALUE


def due_ms(time: int) -> int:
    """When the job or the tick is due whose time of delivery is `time`, both unix ms."""
    return time + SHIFT_MS
