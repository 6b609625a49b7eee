"""Queues in a state: how many jobs of a queue were waiting, in flight, paused or dead at that moment.

Streams are not marked as queues. One counts as a queue if its first entry has the form of a job, or if a helper stream
or a lane of a queue stands beside it. The figures of a queue count the jobs in its lanes (tools/queue_streams.py). Cold
rows stay cold, except the records of pauses.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.engine.groups.group import Group
from tidelog.engine.ids import MAX
from tidelog.engine.keys.state import State
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream
from tidelog.jobs import rows
from tidelog.jobs.streams import waiting
from tidelog.jobs.work.later import GROUP, SHIFT_MS
from tidelog.tools.queue_streams import (
    DEAD,
    FAILURES,
    HOLDS,
    LANES,
    LATER,
    is_job,
    is_lane,
    queue_of,
)
from tidelog.tools.text import argument, json_value

_PAUSES_READ: Final = 100_000  # of the newest records of pauses


def queue_facts(
    state: State, db: int, key: bytes, stream: Stream, now: int
) -> dict[str, Any] | None:
    """The figures of the queue at a key, for JSON; None if the stream is no queue. `now`: the moment, unix ms.

    A lane is no queue, unless the stream of its queue is missing.
    """
    helpers = HOLDS, FAILURES, DEAD, LATER
    if key.endswith(helpers) or is_lane(key) and _stream(state, db, queue_of(key)) is not None:
        return None
    beside = {suffix: _stream(state, db, key + suffix) for suffix in helpers}
    lanes = _lanes(state, db, key)
    if not _has_jobs(stream) and not any(beside.values()) and not lanes:
        return None
    streams = [(stream, beside[HOLDS])]
    streams += [(lane, _stream(state, db, name + HOLDS)) for name, lane in lanes.items()]
    return {
        "groups": [_group_facts(streams, name, now) for name in sorted(stream.groups)],
        "dead": _length(beside[DEAD]),
        "failures": _length(beside[FAILURES]),
        **({} if beside[LATER] is None else {"scheduled": _scheduled(beside[LATER], now)}),
    }


def _lanes(state: State, db: int, key: bytes) -> dict[bytes, Stream]:
    """The lanes of the queue at a key, by their keys. Those without jobs count if they are empty."""
    found: dict[bytes, Stream] = {}
    for lane in LANES:
        stream = _stream(state, db, key + lane)
        if stream is not None and (_has_jobs(stream) or not stream.length):
            found[key + lane] = stream
    return found


def _has_jobs(stream: Stream) -> bool:
    """Whether the first entry has the form of a job."""
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    return first is not None and first[1] is not None and is_job(first[1])


def _group_facts(
    streams: list[tuple[Stream, Stream | None]], name: bytes, now: int
) -> dict[str, Any]:
    """The figures of one group. `streams`: those that hold the queue's jobs, each with its records of pauses."""
    unread = pending = released = paused = 0
    oldest: list[int] = []
    for stream, holds in streams:
        group = stream.groups.get(name)
        fresh = waiting(stream, group)
        unread += fresh
        if fresh:
            behind = 0 if group is None else group.last_id + 1
            oldest += reading.between(stream, behind, MAX, 1).ids()
        if group is not None:
            pending += len(group.pending)
            released += group.pending.nacked()  # nobody holds them: paused, or their pause is over
            paused += _paused(holds, group, now)
            oldest += [group.pending.first()] if len(group.pending) else []
    return {
        "group": json_value(name),
        "depth": unread + pending,
        "waiting": unread + released - paused,
        "in_flight": pending - released,
        "paused": paused,
        "oldest_ms": min(oldest) >> 64 if oldest else None,
    }


def queue_lines(facts: dict[str, Any]) -> list[str]:
    """The figures in words, a line for each group."""
    ends = f"{facts['dead']:,} dead, {facts['failures']:,} failures kept"
    if "scheduled" in facts:
        ends += f", {facts['scheduled']:,} scheduled"
    return [
        f"  queue, group {_shown(one['group'])}: {one['depth']:,} unfinished, {one['waiting']:,} waiting, "
        f"{one['in_flight']:,} in flight, {one['paused']:,} paused; {ends}"
        for one in facts["groups"]
    ] or [f"  queue without a group: {ends}"]


def _shown(name: Any) -> str:
    return argument(name.encode()) if isinstance(name, str) else str(name["base64"])


def _stream(state: State, db: int, key: bytes) -> Stream | None:
    keys = state.databases[db].keys
    value = keys.look(key)[0] if key in keys else None
    return value if isinstance(value, Stream) else None


def _length(stream: Stream | None) -> int:
    return 0 if stream is None else stream.length


def _scheduled(later: Stream | None, now: int) -> int:
    """How many delayed jobs are not due yet."""
    group = None if later is None else later.groups.get(GROUP)
    return 0 if group is None else len(group.pending) - group.pending.until(now - SHIFT_MS)


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
