"""Queues in a state: how many jobs of a queue were waiting, in flight, paused or dead at that moment.

Streams are not marked as queues. One counts as a queue if its first entry has the form of a job, or if a helper stream
or a lane of a queue stands beside it. The figures of a queue count the jobs in its lanes. Cold rows stay cold, except
the records of pauses.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.engine.api import Group, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.figures.model import QueueFigures
from tidelog.figures.names import (
    DEAD,
    DUE,
    FAILURES,
    HOLDS,
    LANES,
    LATER,
    NOTES,
    due_ms,
    is_job,
    is_lane,
    queue_of,
)
from tidelog.figures.streams import stream_at
from tidelog.jobs import rows
from tidelog.jobs.streams import counted

_PAUSES_READ: Final = 100_000  # of the newest records of pauses
Jobs = tuple[Stream, Stream | None]  # a stream that holds jobs, and its records of pauses


def of_queue(state: State, db: int, key: bytes, stream: Stream, now: int) -> list[QueueFigures]:
    """The figures of the queue at a key, for each of its groups; none if the stream is no queue. `now`: unix ms.

    A lane is no queue, unless the stream of its queue is missing. A queue that no worker has opened has one item.
    """
    if key.endswith(NOTES) or is_lane(key) and stream_at(state, (db, queue_of(key))) is not None:
        return []
    beside = {suffix: stream_at(state, (db, key + suffix)) for suffix in NOTES}
    lanes = {key + lane: stream_at(state, (db, key + lane)) for lane in LANES}
    # A lane counts if it has jobs or nothing.
    jobs = [(stream, beside[HOLDS])] + [
        (lane, stream_at(state, (db, name + HOLDS)))
        for name, lane in lanes.items()
        if lane is not None and (has_jobs(lane) or not lane.length)
    ]
    if len(jobs) == 1 and not has_jobs(stream) and not any(beside.values()):
        return []
    later = beside[LATER]
    ends: dict[str, Any] = {
        "dead": _length(beside[DEAD]),
        "failures": _length(beside[FAILURES]),
        "scheduled": None if later is None else scheduled(later, now),
    }
    names: list[bytes | None] = [*sorted(stream.groups)] or [None]
    return [QueueFigures(db, key, name, **_counts(jobs, name, now), **ends) for name in names]


def has_jobs(stream: Stream) -> bool:
    """Whether the first entry has the form of a job."""
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    return first is not None and first[1] is not None and is_job(first[1])


def _counts(streams: list[Jobs], name: bytes | None, now: int) -> dict[str, Any]:
    """The figures of one group, by their names. `streams`: those that hold the queue's jobs."""
    new = pending = given = paused = 0
    oldest = MAX
    for stream, holds in streams:
        group = None if name is None else stream.groups.get(name)
        some, delivered, free, first = counted(stream, group)
        new, pending, given = new + some, pending + delivered, given + free
        oldest = min(oldest, first)
        if group is not None:
            paused += _paused(holds, group, now)
    return {
        "depth": new + pending,
        "waiting": new + given - paused,
        "in_flight": pending - given,
        "paused": paused,
        "oldest_ms": None if oldest == MAX else oldest >> 64,
    }


def _length(stream: Stream | None) -> int:
    return 0 if stream is None else stream.length


def scheduled(later: Stream, now: int) -> int:
    """How many delayed jobs are not due yet."""
    group = later.groups.get(DUE)
    return 0 if group is None else len(group.pending) - group.pending.until(now - due_ms(0))


def _paused(holds: Stream | None, group: Group, now: int) -> int:
    """How many of the jobs that nobody holds wait for the end of a pause, by the newest record of each."""
    if holds is None or not group.pending.nacked():
        return 0
    until: dict[int, int] = {}
    newest = reading.between(holds, 0, MAX, _PAUSES_READ, reverse=True)
    for _, row in newest:
        found = None if row is None else rows.hold_of(group.name, row)
        if found is not None:
            until.setdefault(*found)
    return sum(
        not owner and until.get(job, 0) > now for job, _, owner, _ in group.pending.entries()
    )
