"""`tidelog queue schedule ls`: one line per schedule."""

from __future__ import annotations

from typing import Any

from tidelog.jobs.scheduling import Schedule
from tidelog.tools import console
from tidelog.tools.heads import LINES
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.store import opened
from tidelog.tools.queue.value import cell, decoded, moment_text, one_line, value_cell
from tidelog.tools.text import milliseconds

HEAD = ("SCHEDULE", "QUEUE", "WHEN", "NEXT", "TICKS", "VALUE")


@at_path_or_url(
    "tidelog queue schedule ls orders-data",
    "tidelog queue schedule ls orders-data --json | jq 'select(.paused)'",
    json=LINES,
)
def command(path: PathOrUrl, as_json: bool) -> None:
    with opened(path) as store:
        found = store.schedules.list()
    if as_json:
        console.objects(as_object(schedule) for schedule in found)
    else:
        console.table(HEAD, list(map(shown, found)), right="TICKS")


def when_text(schedule: Schedule) -> str:
    """Its cron expression with the zone, or its interval."""
    if schedule.every is not None:
        return f"every {schedule.every:g} s"
    return f"{schedule.cron} ({schedule.tz})"


def next_text(schedule: Schedule) -> str:
    """When it ticks next."""
    if schedule.next_at is None:
        return "paused"
    return moment_text(schedule.next_at)


def shown(schedule: Schedule) -> tuple[str, ...]:
    return (
        cell(one_line(schedule.name)),
        cell(one_line(schedule.queue)),
        cell(one_line(when_text(schedule))),
        next_text(schedule),
        f"{schedule.ticks:,}",
        value_cell(decoded(schedule.raw, "json")),
    )


def as_object(schedule: Schedule) -> dict[str, Any]:
    """Everything about a schedule."""
    return {
        "name": schedule.name,
        "queue": schedule.queue,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "every": schedule.every,
        "catch_up": schedule.catch_up,
        "next_ms": None if schedule.next_at is None else milliseconds(schedule.next_at),
        "paused": schedule.paused,
        "ticks": schedule.ticks,
        **decoded(schedule.raw, "json").fields(),
    }
