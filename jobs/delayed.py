"""Cancel and move delayed jobs."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from tidelog.engine import ids
from tidelog.engine.api import Context, log_acked, log_claim
from tidelog.engine.idlist import pack
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import job_number
from tidelog.jobs.work.later import AT, CONSUMER, GROUP, Due, find_later, time_of
from tidelog.store.commit.core import Answer
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError


def cancel(engine: QueueEngine, job_id: str) -> Answer:
    """Delete a delayed job: (whether it was there, promise)."""
    work = partial(log_cancel, engine, number=job_number(job_id))
    answer: Answer = engine.decided(work)
    return answer


def log_cancel(engine: QueueEngine, ctx: Context, number: int) -> int:
    """[lock] Log that a delayed job is deleted. Returns 1, or 0 if it is none."""
    options = engine.options
    found = find_later(ctx, options)
    if found is None or not found[1].pending.contains(number):
        return 0
    stream = found[0]
    here = [number] if stream.contains(number) else []
    engine.shared.ended([ids.text(number)])
    log_acked(ctx, options.later_key, stream, GROUP, pack([number]), here)
    return len(here)


def move(engine: QueueEngine, job_id: str, delay: Duration | None, at: datetime | None) -> Answer:
    """Make a delayed job due at another time: (whether it was there, promise)."""
    number = job_number(job_id)
    if delay is None and at is None:
        raise DataError("move needs the new time: delay or at")
    work = partial(log_move, engine, number=number, due=engine.due_at(delay, at))
    answer: Answer = engine.decided(work)
    return answer


def log_move(engine: QueueEngine, ctx: Context, number: int, due: Due | None) -> int:
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
    engine.shared.later.hear(engine.core, due_ms + times.lead, now)
    return 1
