"""Rules: when a schedule ticks, and how its definition is stored.

A schedule is an entry of the stream SCHEDULES of its database:

    name, queue, value     its name, the queue that gets the jobs, and their encoded value
    cron, tz               a cron expression and its time zone; or
    every, anchor          an interval in ms, and the unix ms from which it is counted
    catch_up               `one`, `all` or `none`: what happens to ticks that were missed
    priority               of its jobs; missing = 0

The entry is pending in the group `due`, and its time of delivery says when the next tick is (work/later.py). A paused
schedule is not pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidelog.engine.api import EntryRow
from tidelog.jobs.options import SCHEDULES as SCHEDULES
from tidelog.jobs.options import named, ranked
from tidelog.jobs.rows import PRIORITY, VALUE, fields_of, priority_of
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

CATCH_UP: Final = ("one", "all", "none")
# With catch_up="none", a tick that no worker made within this time is skipped.
GRACE_MS: Final = 60_000
EVERY_SECONDS_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Rule:
    """The definition of a schedule.

    cron, tz    None for an interval
    every       ms, 0 for a cron expression; counted from `anchor`, unix ms
    """

    name: bytes
    queue: bytes
    value: bytes
    cron: str | None
    tz: str | None
    every: int
    anchor: int
    catch_up: str
    priority: int = 0

    def row(self) -> EntryRow:
        """The entry that stores it."""
        when: tuple[bytes, ...]
        if self.cron is None:
            when = (b"every", b"%d" % self.every, b"anchor", b"%d" % self.anchor)
        else:
            when = (b"cron", self.cron.encode(), b"tz", (self.tz or "UTC").encode())
        head = (b"name", self.name, b"queue", self.queue, VALUE, self.value)
        rank = (PRIORITY, b"%d" % self.priority) if self.priority else ()
        return (*head, *when, b"catch_up", self.catch_up.encode(), *rank)

    def is_like(self, other: Rule) -> bool:
        """Whether both say the same. The anchor does not count: a program gives the same interval at each start."""
        return self.row_without_anchor() == other.row_without_anchor()

    def row_without_anchor(self) -> tuple[Any, ...]:
        """The facts that a program gives."""
        when = self.cron, self.tz, self.every, self.catch_up
        return self.name, self.queue, self.value, self.priority, *when

    def begun(self, now: int) -> Rule:
        """The same, made at `now`, unix ms. Raises DataError if it never ticks."""
        if self.cron is None:
            return replace(self, anchor=now)
        if self.after(now) is None:
            raise DataError(f"the cron expression {self.cron!r} never fires in the next 50 years")
        return self

    def after(self, ms: int) -> int | None:
        """The first tick after `ms`, unix ms; None if there is none in the next 50 years. Raises DataError."""
        if self.cron is None:
            return self.anchor + ((ms - self.anchor) // self.every + 1) * self.every
        return _cron_after(self.cron, self.tz or "UTC", ms)

    def until(self, ms: int) -> int:
        """The last tick at `ms`, unix ms, or before; 0 if there is none. Raises DataError."""
        if self.cron is None:
            return self.anchor + (ms - self.anchor) // self.every * self.every
        return _cron_until(self.cron, self.tz or "UTC", ms)

    def shown_tick(self, ms: int) -> str:
        """A tick as text, in the zone of the schedule."""
        zone = UTC if self.tz is None else _zone(self.tz)
        return datetime.fromtimestamp(ms / 1000, zone).isoformat()


def rule_of(row: Sequence[bytes]) -> Rule | None:
    """The rule that an entry stores; None if it is malformed, as another client may have written it."""
    fields = fields_of(row)
    try:
        cron = fields[b"cron"].decode() if b"cron" in fields else None
        rule = Rule(
            fields[b"name"],
            fields[b"queue"],
            fields[VALUE],
            cron,
            fields[b"tz"].decode() if cron is not None else None,
            0 if cron is not None else int(fields[b"every"]),
            0 if cron is not None else int(fields[b"anchor"]),
            fields[b"catch_up"].decode(),
            priority_of(row),
        )
    except (KeyError, ValueError):
        return None
    valid = rule.catch_up in CATCH_UP and (rule.cron is not None or rule.every > 0)
    return rule if valid else None


def make_rule(
    name: Any,
    cron: Any,
    every: Duration | None,
    queue: Any,
    value: bytes,
    tz: Any,
    catch_up: Any,
    priority: Any = 0,
) -> Rule:
    """A rule of the arguments that a caller gave, to be begun. Raises DataError."""
    if catch_up not in CATCH_UP:
        raise DataError(f"catch_up must be one of {', '.join(CATCH_UP)}, not {catch_up!r}")
    if (cron is None) == (every is None):
        raise DataError("a schedule needs either a cron expression or every, and not both")
    key, queue_key = named("name", name), named("queue", queue)
    ranked(priority)
    if every is not None:
        if tz is not None:
            raise DataError("tz is for cron expressions; an interval has no time zone")
        length = seconds("every", every)
        if length < EVERY_SECONDS_MIN:
            raise DataError(f"every must be at least {EVERY_SECONDS_MIN:.0f} second, not {every!r}")
        return Rule(key, queue_key, value, None, None, round(length * 1000), 0, catch_up, priority)
    if not isinstance(cron, str):
        raise DataError(f"a cron expression is a str such as '0 3 * * *', not {cron!r}")
    zone = "UTC" if tz is None else tz
    if not isinstance(zone, str):
        raise DataError(f"tz must be the name of a time zone such as 'Europe/Berlin', not {tz!r}")
    return Rule(key, queue_key, value, " ".join(cron.split()), zone, 0, 0, catch_up, priority)


# --- cron expressions


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise DataError(f"there is no time zone {name!r} on this machine: {error}") from None


def _ticks(cron: str, tz: str, ms: int, reverse: bool = False) -> Iterator[int]:
    """The ticks after `ms`, or before it if `reverse`, in unix ms. Raises DataError."""
    # here: a program without cron expressions does not load the package
    from cronsim import CronSim, CronSimError

    try:
        for found in CronSim(cron, datetime.fromtimestamp(ms // 1000, _zone(tz)), reverse):
            yield int(found.timestamp()) * 1000
    except CronSimError as error:
        raise DataError(f"the cron expression {cron!r} is invalid: {error}") from None
    except (OverflowError, ValueError):
        return  # beyond the years that a datetime can hold


def _cron_after(cron: str, tz: str, ms: int) -> int | None:
    # In the hour that a change to winter time repeats, cronsim begins with the first of the two.
    return next((tick for tick in _ticks(cron, tz, ms) if tick > ms), None)


def _cron_until(cron: str, tz: str, ms: int) -> int:
    return next((tick for tick in _ticks(cron, tz, ms + 1000, reverse=True) if tick <= ms), 0)
