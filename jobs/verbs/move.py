"""QUEUE MOVE: make a delayed job due at another time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

from tidelog.engine import ids
from tidelog.engine.api import Context, log_claim
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import job_number
from tidelog.jobs.own import ONE, Own, job_id
from tidelog.jobs.verbs.verb import WORKS, Change, Facts
from tidelog.jobs.work.later import AT, CONSUMER, GROUP, Due, find_later, time_of, when
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError


@dataclass(frozen=True, slots=True)
class Move(Change):
    """Make a delayed job due at another time: 1; 0 if it is no delayed job any more.

    to    its options of a time; it has one
    """

    name = b"MOVE"
    facts = Facts(
        *(-6, WORKS, "RW update", "0.1.0", "Make a delayed job due at another time"),
        ("MOVE <name> <id> DELAY <ms> | AT <unix-ms>", "Make a delayed job due at another time."),
    )
    places = 1
    options = {b"DELAY": ONE, b"AT": ONE}

    job: int
    to: JobOptions

    @classmethod
    def of(cls, job: str, delay: Duration | None, at: datetime | None) -> Self:
        """The request of a caller who names a job and a time. Raises DataError."""
        number = job_number(job)
        if delay is None and at is None:
            raise DataError("move needs the new time: delay or at")
        delay_ms, at_ms = when(delay, at)
        return cls(number, JobOptions(delay_ms=delay_ms, at_ms=at_ms))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [ids.text(self.job), *self.to.words()]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        if b"DELAY" not in own and b"AT" not in own:
            raise CommandError(SYNTAX)
        return cls(job_id(words[0]), JobOptions.parse(own))

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        due = self.to.due(engine.core.clocks().wall)
        return partial(_log_move, engine, number=self.job, due=due)


def _log_move(engine: QueueEngine, ctx: Context, number: int, due: Due | None) -> int:
    """[lock] Log the new time of a delayed job; None = now. Returns 1, or 0 if it is none."""
    options = engine.options
    found = find_later(ctx, options)
    if found is None or not found[1].pending.contains(number):
        return 0
    times = engine.core.clocks(ctx.now)
    now = times.store
    due_ms = times.wall if due is None else due.moment(times.wall)
    # The delay of a moved job is counted from the move, but leaps of the clock from its put, which its ID tells.
    # So it is due at a time.
    key, time = options.later_key, time_of(due_ms)
    log_claim(ctx, key, GROUP, CONSUMER, {number: AT}, time, now, ())
    engine.known.later.hear(engine.core, due_ms + times.lead, now)
    return 1
