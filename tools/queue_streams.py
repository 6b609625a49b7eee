"""The streams of a queue by their keys, and its jobs in words: for tools that find them in a log or in a state.

A queue `mails` has its jobs in `mails`, and those of a priority in the lane `mails:priority:1` to `mails:priority:9`.
Each of these streams has its own `:holds`. All share `mails:failures`, `mails:dead` and `mails:later`, and the results,
the strings `mails:result:<id>`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidelog.engine import ids
from tidelog.engine.ids import SEQ_MAX
from tidelog.jobs import rows
from tidelog.jobs.options import SUFFIXES
from tidelog.jobs.work.later import FIRST_SEQ, GROUP, SHIFT_MS
from tidelog.jobs.work.later import has_due_times as has_due_times
from tidelog.tools.text import argument, span, time_text

HOLDS, FAILURES, DEAD, LATER = (suffix.encode() for suffix in SUFFIXES)
LANES: Final = tuple(b":priority:%d" % priority for priority in range(1, 10))
DUE: Final = GROUP
_LANE: Final = re.compile(rb":priority:[1-9]\Z")


class QueueStreams:
    """The keys of the queue to which a key belongs.

    jobs    of the jobs that are due, the lanes of priorities included
    later   of the delayed jobs
    notes   of what the queue notes about jobs
    """

    def __init__(self, key: bytes) -> None:
        self.name = queue_of(key).removesuffix(LATER)
        name = self.name
        self.jobs = frozenset((name, *(name + lane for lane in LANES)))
        self.later = name + LATER
        self.dead = name + DEAD
        self.failures = name + FAILURES
        self.notes = frozenset((self.failures, self.dead, *(jobs + HOLDS for jobs in self.jobs)))
        self.all = self.jobs | self.notes | {self.later}

    def result(self, first: bytes) -> bytes:
        """The key of the result of a job, by the ID that `put` returned."""
        return self.name + b":result:" + first


def is_lane(key: bytes) -> bool:
    """Whether a key is that of the jobs of one priority."""
    return _LANE.search(key) is not None


def queue_of(key: bytes) -> bytes:
    """The key of the queue to which a lane belongs; any other key as it is."""
    return _LANE.sub(b"", key)


def is_job(row: Sequence[bytes]) -> bool:
    """Whether a row is that of a job."""
    return bool(row) and row[0] == rows.VALUE


def may_be_delayed(entry_id: int) -> bool:
    """Whether an ID may be that of a delayed job."""
    return entry_id & SEQ_MAX >= FIRST_SEQ


def origin_of(row: Sequence[bytes]) -> bytes | None:
    """The ID that `put` returned, of a job that was delayed or redriven; None for other entries."""
    return rows.fields_of(row).get(rows.ORIGIN) if is_job(row) else None


def delayed_origin(row: Sequence[bytes]) -> int | None:
    """The ID as a delayed job, if a job ever was one."""
    first = ids.parse_or_none(origin_of(row) or b"")
    return first if first is not None and may_be_delayed(first) else None


def due_ms(time: int) -> int:
    """When the job or the tick is due whose time of delivery is `time`, both unix ms."""
    return time + SHIFT_MS


def due_in(due: int, now: int) -> str:
    """How long it is from `now` until something is due, in words."""
    return f"due in {span(due - now)}" if due > now else f"due {span(now - due)} ago"


def due_text(time: int) -> str:
    """The time of a delivery in the group `due` in words: when the job or the tick is due."""
    return time_text(due_ms(time))


def job_text(row: Sequence[bytes]) -> str:
    """The schedule, priority, key and time of expiry in a job's row, in words; empty for most jobs."""
    if not is_job(row):
        return ""
    fields = rows.fields_of(row)
    said = ""
    schedule, tick = (fields.get(rows.HEADER + name) for name in (b"schedule", b"tick"))
    if schedule is not None and tick is not None:
        said += f", by the schedule {argument(schedule)} for its tick {argument(tick)}"
    for name in (b"priority", b"key"):
        if name in fields:
            said += f", {name.decode()} {argument(fields[name])}"
    expires = rows.expires_at(row)
    if expires is not None:
        said += f", expires {time_text(expires)}"
    return said
