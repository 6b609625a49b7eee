"""Queues in a state: how many jobs of a queue were waiting, in flight, paused or dead at that moment.

Streams are not marked as queues. One counts as a queue if its first entry has the form of a job, or if a helper stream
of a queue stands beside it. Cold rows stay cold, except the records of pauses.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.engine.groups.group import Group
from tidelog.engine.ids import MAX
from tidelog.engine.keys.state import State
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream
from tidelog.store.queue import rows
from tidelog.store.queue.options import SUFFIXES
from tidelog.store.queue.streams import waiting
from tidelog.store.queue.work.later import GROUP, SHIFT_MS
from tidelog.tools.text import argument, json_value

HOLDS, FAILURES, DEAD, LATER = (suffix.encode() for suffix in SUFFIXES)
_PAUSES_READ: Final = 100_000  # of the newest records of pauses


def queue_facts(
    state: State, db: int, key: bytes, stream: Stream, now: int
) -> dict[str, Any] | None:
    """The figures of the queue at a key, for JSON; None if the stream is no queue. `now`: the moment, unix ms."""
    helpers = HOLDS, FAILURES, DEAD, LATER
    if key.endswith(helpers):
        return None
    beside = {suffix: _stream(state, db, key + suffix) for suffix in helpers}
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    job = first is not None and first[1] is not None and first[1][:1] == (rows.VALUE,)
    if not job and not any(beside.values()):
        return None
    return {
        "groups": [
            _group_facts(stream, stream.groups[name], beside[HOLDS], now)
            for name in sorted(stream.groups)
        ],
        "dead": _length(beside[DEAD]),
        "failures": _length(beside[FAILURES]),
        **({} if beside[LATER] is None else {"scheduled": _scheduled(beside[LATER], now)}),
    }


def _group_facts(stream: Stream, group: Group, holds: Stream | None, now: int) -> dict[str, Any]:
    unread = waiting(stream, group)
    released = group.pending.nacked()  # nobody holds them: they are paused, or their pause is over
    paused = _paused(holds, group, now)
    oldest = [group.pending.first()] if len(group.pending) else []
    if unread:
        oldest += reading.between(stream, group.last_id + 1, MAX, 1).ids()
    return {
        "group": json_value(group.name),
        "depth": unread + len(group.pending),
        "waiting": unread + released - paused,
        "in_flight": len(group.pending) - released,
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
