"""Cancel and move delayed jobs, and forget dedup IDs."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from tidelog.engine import ids
from tidelog.engine.api import Context, log_acked, log_claim
from tidelog.engine.idlist import pack
from tidelog.jobs.dedup import let_go
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import job_number, named
from tidelog.jobs.work.freeing import forget, free_window
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
    ctx.effects += let_go(ctx, options, stream, (number,)) + free_window(ctx, options, (number,))
    log_acked(ctx, options.later_key, stream, GROUP, pack([number]), here)
    return len(here)


def forget_id(engine: QueueEngine, dedup_id: Any) -> Answer:
    """Free a dedup ID: (whether it was known, promise). Raises DataError."""
    work = partial(log_forget, engine, dedup_id=named("dedup_id", dedup_id))
    answer: Answer = engine.decided(work)
    return answer


def log_forget(engine: QueueEngine, ctx: Context, dedup_id: bytes) -> int:
    """[lock] Log that a dedup ID is free. Returns 1, or 0 if it was free."""
    ctx.stream(engine.options.key)  # raises for a key of another type
    found = forget(ctx, engine.options, dedup_id)
    ctx.effects += found
    return int(bool(found))


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
