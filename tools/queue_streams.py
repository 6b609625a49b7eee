"""Queues and jobs in words: for tools that find them in a log or in a state. figures/names.py knows their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.engine import ids
from tidelog.engine.ids import SEQ_MAX
from tidelog.figures.model import QueueFigures
from tidelog.figures.names import FIRST_SEQ, due_ms, is_job
from tidelog.jobs import rows
from tidelog.tools.text import argument, json_value, span, time_text


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


def queue_object(groups: Sequence[QueueFigures]) -> dict[str, Any]:
    """The figures of a queue's groups, for JSON."""
    one = groups[0]
    figures = ("depth", "waiting", "in_flight", "paused", "oldest_ms")
    return {
        "groups": [
            {"group": json_value(each.group)} | {name: getattr(each, name) for name in figures}
            for each in groups
            if each.group is not None
        ],
        "dead": one.dead,
        "failures": one.failures,
        **({} if one.scheduled is None else {"scheduled": one.scheduled}),
    }


def queue_lines(groups: Sequence[QueueFigures]) -> list[str]:
    """The figures in words, a line for each group."""
    one = groups[0]
    ends = f"{one.dead:,} dead, {one.failures:,} failures kept"
    if one.scheduled is not None:
        ends += f", {one.scheduled:,} scheduled"
    return [
        f"  queue, group {argument(each.group)}: {each.depth:,} unfinished, {each.waiting:,} waiting, "
        f"{each.in_flight:,} in flight, {each.paused:,} paused; {ends}"
        for each in groups
        if each.group is not None
    ] or [f"  queue without a group: {ends}"]
