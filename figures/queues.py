"""Queues in a state: how many jobs of a queue were waiting, in flight, paused or dead at that moment.

jobs/names.py has the rule which streams are queues. The figures of a queue count the jobs in its lanes. Cold rows stay
cold, except the records of pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from tidelog.engine.api import Group, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.figures.model import QueueFigures
from tidelog.figures.names import (
    CANCELS,
    DEAD,
    DUE,
    FAILURES,
    HOLDS,
    LATER,
    NOTES,
    SCHEDULES,
    due_ms,
    is_lane,
    queue_of,
)
from tidelog.figures.streams import stream_at
from tidelog.jobs import rows
from tidelog.jobs.names import USUAL, groups_of, job_streams, queues
from tidelog.jobs.names import Jobs as DueJobs
from tidelog.jobs.streams import counted
from tidelog.jobs.work.pausing import PAUSED, since

_PAUSES_READ: Final = 100_000  # of the newest records of pauses
# the priority of a stream that holds jobs, the stream, and its records of pauses
Jobs = tuple[int, Stream, Stream | None]


def in_state(
    state: State, databases: Iterable[int], now: int, sees: Callable[[bytes], bool] = bool
) -> list[QueueFigures]:
    """The queues of these databases, for each of their groups, by name. `now`: unix ms; `sees`: the keys to look at.

    One that no worker has opened has the group that a worker opens by default.
    """
    found = [
        row
        for db in databases
        for name, jobs in queues(state.databases[db].keys, sees)
        for row in _figures(state, db, name, jobs, now)
    ]
    found.sort(key=lambda row: (row.db, row.key))
    return [row if row.group is not None else replace(row, group=USUAL.encode()) for row in found]


def of_queue(state: State, db: int, key: bytes, now: int) -> list[QueueFigures]:
    """The figures of the queue at a key, for each of its groups; none if the stream is no queue. `now`: unix ms.

    A lane is no queue, unless the stream of its queue is missing. A queue that no worker has opened has one item. An
    empty stream is none, also if it has a group.
    """
    if key == SCHEDULES or key.endswith(NOTES):
        return []
    if is_lane(key) and stream_at(state, (db, queue_of(key))) is not None:
        return []
    jobs = job_streams(state.databases[db].keys, key, drained=False)
    return [] if jobs is None else _figures(state, db, key, jobs, now)


def _figures(
    state: State, db: int, key: bytes, due: Sequence[DueJobs], now: int
) -> list[QueueFigures]:
    """The figures of the queue whose jobs that are due lie in these streams."""
    jobs = [(rank, stream, stream_at(state, (db, name + HOLDS))) for rank, name, stream in due]
    dead, failures, later, cancels = (
        stream_at(state, (db, key + end)) for end in (DEAD, FAILURES, LATER, CANCELS)
    )
    in_later = later is not None and DUE in later.groups
    still = scheduled(later, now) if later is not None and in_later else 0
    arrived = len(later.groups[DUE].pending) - still if later is not None and in_later else 0
    ends: dict[str, Any] = {
        "dead": _length(dead),
        "failures": _length(failures),
        "scheduled": None if later is None else still,
        "cancelled": 0 if cancels is None else cancels.entries_added,
        "stopped_ms": since(state.databases[db].keys.get(key + PAUSED)),
    }
    groups: list[bytes | None] = [*groups_of(due)]
    return [
        QueueFigures(db, key, name, **_counts(jobs, name, now, arrived), **ends)
        for name in groups or [None]
    ]


def _counts(streams: list[Jobs], name: bytes | None, now: int, arrived: int) -> dict[str, Any]:
    """The figures of one group, by their names. `arrived`: delayed jobs that are due, which no fetch has seen yet."""
    new = pending = given = paused = 0
    oldest = MAX
    held: Counter[bytes] = Counter()
    by_priority: dict[int, int] = {}
    for priority, stream, holds in streams:
        group = None if name is None else stream.groups.get(name)
        some, delivered, free, first = counted(stream, group)
        new, pending, given = new + some, pending + delivered, given + free
        oldest = min(oldest, first)
        if group is not None:
            still = len(resting(holds, group, now))
            paused, free = paused + still, free - still
            for one in group.listed():
                held[one.name] += group.pending.held_by(one.index)
        if some + free:
            by_priority[priority] = some + free
    put = sum(stream.entries_added for _, stream, _ in streams)
    return {
        "depth": new + pending + arrived,
        "waiting": new + given - paused + arrived,
        "in_flight": pending - given,
        "paused": paused,
        "oldest_ms": None if oldest == MAX else oldest >> 64,
        "kept": max(0, sum(stream.length for _, stream, _ in streams) - new - pending),
        "held": tuple(sorted((+held).items())),
        "by_priority": tuple(by_priority.items()),
        "put": put,
        "left": max(0, put - new - pending),
    }


def _length(stream: Stream | None) -> int:
    return 0 if stream is None else stream.length


def scheduled(later: Stream, now: int) -> int:
    """How many delayed jobs are not due yet."""
    group = later.groups.get(DUE)
    return 0 if group is None else len(group.pending) - group.pending.until(now - due_ms(0))


def resting(holds: Stream | None, group: Group, now: int) -> set[int]:
    """The jobs of a stream that nobody holds because their pause is not over, by the newest record of each."""
    if holds is None or not group.pending.nacked():
        return set()
    until: dict[int, int] = {}
    newest = reading.between(holds, 0, MAX, _PAUSES_READ, reverse=True)
    for _, row in newest:
        found = None if row is None else rows.deferral_of(group.name, row)
        if found is not None:
            until.setdefault(*found)
    return {
        job for job, _, owner, _ in group.pending.entries() if not owner and until.get(job, 0) > now
    }
