"""Change and list the schedules of a database, without waiting. See jobs/rules.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidelog.engine import ids
from tidelog.engine.api import Context, Group, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs import rows
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.options import make_options, named
from tidelog.jobs.rules import SCHEDULES, Rule, make_rule, rule_of
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.later import GROUP, SHIFT_MS, next_later
from tidelog.jobs.work.leases import leases_of
from tidelog.jobs.work.ticks import next_tick, schedules_of, tick_words
from tidelog.store.clock import Times
from tidelog.store.commit.core import Answer
from tidelog.store.durations import Duration

Words = list[list[bytes]]


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


def _shown(rule: Rule, pending: tuple[int, int, int] | None, times: Times) -> Schedule:
    tick = None if pending is None else next_tick(rule, pending[0] + SHIFT_MS, times)
    return Schedule(
        rows.shown(rule.name),
        rows.shown(rule.queue),
        rule.cron,
        rule.tz,
        rule.every / 1000 if rule.cron is None else None,
        rule.catch_up,
        rule.value,
        None if tick is None else rows.moment(tick),
        pending is None,
        0 if pending is None else pending[2],
        rule.priority,
    )


class SchedulesEngine(InDatabase):
    """The schedules of one database of an open store. Each change is one unit."""

    def add(
        self,
        name: Any,
        cron: Any,
        every: Duration | None,
        queue: Any,
        value: Any,
        tz: Any,
        catch_up: Any,
        codec: Any,
        priority: Any = 0,
    ) -> Answer:
        """Add or replace a schedule: ((rule, its row of pending), promise)."""
        core = self.core
        options = make_options(queue, codec=codec)
        raw = rows.encode_value(options, value)
        times = core.clocks()
        rule = make_rule(name, cron, every, queue, raw, tz, catch_up, times.wall, priority)
        ticks = leases_of(core).ticks_of(self.db)
        kept: list[tuple[Rule, tuple[int, int, int] | None]] = []

        def plan(ctx: Context) -> Words | None:
            kept.clear()
            stream = stream_at(ctx, SCHEDULES)
            found = schedules_of(stream)
            words: Words = []
            if found is None:
                words.append([b"XGROUP", b"CREATE", SCHEDULES, GROUP, b"0", b"MKSTREAM"])
            old = None if found is None else _find(found, rule.name)
            paused = False
            if old is not None and found is not None:
                entry, before, pending = old
                if rule.is_like(before):
                    kept.append((before, pending))
                    return None
                paused = pending is None
                words += _gone_words(entry)
            entry = next_later(0 if stream is None else stream.last_id, ctx.now)
            words.append([b"XADD", SCHEDULES, ids.text(entry), *rule.row()])
            wall = core.clocks(ctx.now).wall
            tick = None if paused else rule.after(wall)
            if tick is not None:
                words.append(tick_words(entry, tick, 0))
                ticks.hear(core, tick, wall)
            kept.append((rule, None if tick is None else (tick - SHIFT_MS, 0, 0)))
            return words

        _, promise = self.unit(plan)
        return _shown(*kept[-1], times), promise

    def change(self, name: str, words: Callable[[Context, int, Rule, bool], Words]) -> Answer:
        """Change a schedule by the commands that `words` returns: (whether there is one of that name, promise)."""
        wanted, there = named("name", name), False

        def plan(ctx: Context) -> Words | None:
            nonlocal there
            found = schedules_of(stream_at(ctx, SCHEDULES))
            old = None if found is None else _find(found, wanted)
            there = old is not None
            if old is None:
                return None
            entry, rule, pending = old
            return words(ctx, entry, rule, pending is None) or None

        _, promise = self.unit(plan)
        return there, promise

    def pause(self, name: str) -> Answer:
        """Stop the ticks of a schedule: (whether there is one of that name, promise)."""

        def words(ctx: Context, entry: int, rule: Rule, paused: bool) -> Words:
            return [] if paused else [[b"XACK", SCHEDULES, GROUP, ids.text(entry)]]

        return self.change(name, words)

    def resume(self, name: str) -> Answer:
        """End a pause: (whether there is one of that name, promise)."""
        ticks = leases_of(self.core).ticks_of(self.db)

        def words(ctx: Context, entry: int, rule: Rule, paused: bool) -> Words:
            wall = self.core.clocks(ctx.now).wall
            tick = rule.after(wall) if paused else None
            if tick is None:
                return []
            ticks.hear(self.core, tick, wall)
            return [tick_words(entry, tick, 0)]

        return self.change(name, words)

    def remove(self, name: str) -> Answer:
        """Delete a schedule: (whether there is one of that name, promise)."""
        return self.change(name, lambda ctx, entry, rule, paused: _gone_words(entry))

    def list(self) -> Answer:
        """All schedules, by name: ([Schedule, ...], promise)."""
        times = self.core.clocks()

        def at(state: State) -> list[Schedule]:
            found = schedules_of(state.databases[self.db].keys.get(SCHEDULES))
            if found is None:
                return []
            listed = [_shown(rule, pending, times) for _, rule, pending in _all(found)]
            return sorted(listed, key=lambda schedule: schedule.name)

        answer: Answer = self.core.look(at)
        return answer


def _all(
    found: tuple[Stream, Group],
) -> list[tuple[int, Rule, tuple[int, int, int] | None]]:
    """(ID, rule, row of the pending entry or None) of every schedule."""
    stream, group = found
    entries = reading.between(stream, 0, MAX)
    return [
        (entry, rule, group.pending.get(entry))
        for entry, row in entries
        if row is not None and (rule := rule_of(row)) is not None
    ]


def _find(
    found: tuple[Stream, Group], name: bytes
) -> tuple[int, Rule, tuple[int, int, int] | None] | None:
    return next((each for each in _all(found) if each[1].name == name), None)


def _gone_words(entry: int) -> Words:
    job = ids.text(entry)
    return [[b"XACK", SCHEDULES, GROUP, job], [b"XDEL", SCHEDULES, job]]
