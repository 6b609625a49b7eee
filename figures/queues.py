"""Queues in a state: how many jobs of a queue were waiting, in flight, paused or dead at that moment.

Streams are not marked as queues. One counts as a queue if its first entry has the form of a job, or if a helper stream
or a lane of a queue stands beside it. The figures of a queue count the jobs in its lanes. Cold rows stay cold, except
the records of pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
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
    SCHEDULES,
    due_ms,
    is_job,
    is_lane,
    owner_of,
    queue_of,
)
from tidelog.figures.streams import stream_at
from tidelog.jobs import rows
from tidelog.jobs.names import USUAL
from tidelog.jobs.streams import counted
from tidelog.jobs.work.pausing import PAUSED, since

_PAUSES_READ: Final = 100_000  # of the newest records of pauses
_AHEAD: Final = (LATER, *LANES)
_RANKS: Final = tuple(enumerate(LANES, 1))[::-1]  # in the order of delivery
# the priority of a stream that holds jobs, the stream, and its records of pauses
Jobs = tuple[int, Stream, Stream | None]


def in_state(
    state: State, databases: Iterable[int], now: int, sees: Callable[[bytes], bool] = bool
) -> list[QueueFigures]:
    """The queues of these databases, for each of their groups, by name. `now`: unix ms; `sees`: the keys to look at.

    One that no worker has opened has the group that a worker opens by default.
    """
    found: list[QueueFigures] = []
    for db in databases:
        names = set[bytes]()
        for key, value, _ in state.databases[db].keys.walk():
            if isinstance(value, Stream):
                # A queue that was only put to, for later or with a priority, has no stream of its own yet.
                names.add((owner_of(key) if key.endswith(_AHEAD) else None) or key)
        for name in sorted(filter(sees, names)):
            stream = stream_at(state, (db, name))
            found += of_queue(state, db, name, stream, now, drained=True)
    return [row if row.group is not None else replace(row, group=USUAL.encode()) for row in found]


def of_queue(
    state: State,
    db: int,
    key: bytes,
    stream: Stream | None,
    now: int,
    *,
    drained: bool = False,
) -> list[QueueFigures]:
    """The figures of the queue at a key, for each of its groups; none if the stream is no queue. `now`: unix ms.

    A lane is no queue, unless the stream of its queue is missing. A queue that no worker has opened has one item. With
    `drained` also an empty stream with a group is a queue: all of its jobs may be done.
    """
    if (
        key == SCHEDULES
        or key.endswith(NOTES)
        or is_lane(key)
        and stream_at(state, (db, queue_of(key))) is not None
    ):
        return []
    beside = {suffix: stream_at(state, (db, key + suffix)) for suffix in NOTES}
    lanes = {rank: (key + lane, stream_at(state, (db, key + lane))) for rank, lane in _RANKS}
    # A lane counts if it has jobs or nothing.
    jobs = [
        (rank, lane, stream_at(state, (db, name + HOLDS)))
        for rank, (name, lane) in lanes.items()
        if lane is not None and (has_jobs(lane) or not lane.length)
    ]
    later = beside[LATER]
    if stream is not None:
        empty = drained and not stream.length and stream.groups
        if not (jobs or empty or any(beside.values()) or has_jobs(stream)):
            return []
        jobs.append((0, stream, beside[HOLDS]))
    elif not jobs and (later is None or not has_jobs(later)):
        return []
    in_later = later is not None and DUE in later.groups
    still = scheduled(later, now) if later is not None and in_later else 0
    arrived = len(later.groups[DUE].pending) - still if later is not None and in_later else 0
    ends: dict[str, Any] = {
        "dead": _length(beside[DEAD]),
        "failures": _length(beside[FAILURES]),
        "scheduled": None if later is None else still,
        "stopped_ms": since(state.databases[db].keys.get(key + PAUSED)),
    }
    names: list[bytes | None] = [*sorted({name for _, lane, _ in jobs for name in lane.groups})]
    return [
        QueueFigures(db, key, name, **_counts(jobs, name, now, arrived), **ends)
        for name in names or [None]
    ]


def has_jobs(stream: Stream) -> bool:
    """Whether the first entry has the form of a job."""
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    return first is not None and first[1] is not None and is_job(first[1])


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
            resting = _paused(holds, group, now)
            paused, free = paused + resting, free - resting
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
