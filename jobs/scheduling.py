"""Schedules as a caller sees them, and as a reply of the wire; and where they are in a state. See rules.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from tidelog.engine.api import reading
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Map
from tidelog.jobs import rows
from tidelog.jobs.rules import Rule, rule_of
from tidelog.jobs.work.later import SHIFT_MS
from tidelog.jobs.work.ticks import next_tick, schedules_of
from tidelog.store.clock import Times

_KEYS: Final = tuple(
    b"name queue cron tz every_ms catch_up value next_ms paused ticks priority".split()
)


class Stored(NamedTuple):
    """A schedule in a state: its entry, and the row of the pending entry, None if it is paused."""

    entry: int
    rule: Rule
    pending: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, as `Schedules.list` shows it.

    Attributes:
        name: Its name.
        queue: Name of the queue that gets its jobs.
        cron: The cron expression; None if it has an interval.
        tz: Name of the time zone of the cron expression; None if it has an interval.
        every: The interval in seconds; None if it has a cron expression.
        catch_up: `one`, `all` or `none`.
        raw: The value of its jobs as bytes, as the codec encoded it.
        next_at: When it ticks next, in UTC; None if it is paused or never ticks again.
        paused: Whether it is paused.
        ticks: Number of jobs that it has put since it was added or resumed.
        priority: The priority of its jobs, from 0 to 9.
    """

    name: str
    queue: str
    cron: str | None
    tz: str | None
    every: float | None
    catch_up: str
    raw: bytes
    next_at: datetime | None
    paused: bool
    ticks: int
    priority: int = 0


def stored(value: object) -> list[Stored]:
    """Every schedule of the value at SCHEDULES."""
    found = schedules_of(value)
    return [
        Stored(entry, rule, found[1].pending.get(entry))
        for entry, row in (() if found is None else reading.between(found[0], 0, MAX))
        if found is not None and row is not None and (rule := rule_of(row)) is not None
    ]


def find(value: object, name: bytes) -> Stored | None:
    """The schedule of a name."""
    return next((each for each in stored(value) if each.rule.name == name), None)


def shown(found: Stored, times: Times) -> Schedule:
    """A schedule at a time."""
    _, rule, pending = found
    tick = None if pending is None else next_tick(rule, pending[0] + SHIFT_MS, times)
    return Schedule(
        *(rows.shown(rule.name), rows.shown(rule.queue), rule.cron, rule.tz),
        *(rule.every / 1000 if rule.cron is None else None, rule.catch_up, rule.value),
        *(None if tick is None else rows.moment(tick), pending is None),
        *(0 if pending is None else pending[2], rule.priority),
    )


def pairs(found: Schedule) -> Map:
    """A schedule as a reply."""
    every = None if found.every is None else round(found.every * 1000)
    next_ms = None if found.next_at is None else rows.milliseconds(found.next_at)
    given = found.name, found.queue, found.cron, found.tz, every, found.catch_up, found.raw, next_ms
    reply = Map()
    for key, value in zip(_KEYS, (*given, int(found.paused), found.ticks, found.priority)):
        reply += key, value.encode() if isinstance(value, str) else value
    return reply


def of_pairs(reply: list[Any]) -> Schedule:
    """A schedule from a reply."""
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    name, queue, cron, tz, every, catch_up, raw, next_ms, *rest = map(found.__getitem__, _KEYS)
    paused, ticks, priority = rest
    next_at = None if next_ms is None else rows.moment(next_ms)
    return Schedule(
        *(name.decode(), queue.decode(), cron and cron.decode(), tz and tz.decode()),
        *(None if every is None else every / 1000, catch_up.decode(), raw, next_at),
        *(bool(paused), ticks, priority),
    )
