"""Settle: how a job ends, for good or for now. Decisions under the store's lock; each is one unit of plain commands.

All of them are fenced: they act only while the job is pending for that worker with that number of deliveries. Otherwise
another worker has the job, or it is done, and nothing happens. A later delivery has the same number only if the job was
given back uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.engine import ids
from tidelog.engine.api import (
    XACK,
    XACKDEL,
    Context,
    Effect,
    EntryRow,
    Group,
    Stream,
    log_acked,
    next_id,
    still_referenced,
)
from tidelog.engine.idlist import pack, pack_one
from tidelog.jobs import rows
from tidelog.jobs.dedup import let_go
from tidelog.jobs.options import Options
from tidelog.jobs.rows import Failure
from tidelog.jobs.streams import holds, stream_at
from tidelog.jobs.work import progressing
from tidelog.jobs.work.deaths import given_up
from tidelog.jobs.work.known import Delivery, Known
from tidelog.jobs.work.pauses import Deferral
from tidelog.jobs.work.results import first_id, result_words
from tidelog.store.commit.batch import Decided

Words = list[list[bytes]]


class Held:
    """A job that a worker holds, with what fences it.

    dead    the entry of `<name>:dead`, if the job becomes a dead job
    """

    __slots__ = ("known", "options", "worker", "job", "count", "row", "dead")

    def __init__(self, delivery: Delivery, job: int, count: int, row: EntryRow) -> None:
        self.known, self.options = delivery.known, delivery.options
        self.worker = delivery.worker
        self.job, self.count, self.row = job, count, row
        self.dead: EntryRow | None = None

    def find(self, ctx: Context) -> tuple[Stream, Group] | None:
        """The stream and group if the worker still holds the job, else None. Raises CommandError for another type."""
        options = self.options
        stream = ctx.stream(options.key)
        group = None if stream is None else stream.groups.get(options.group_key)
        if stream is None or group is None or not holds(group, self.worker, self.job, self.count):
            return None
        self.known.fresh(ctx, options, stream, group)
        return stream, group


# --- done


def log_done(ctx: Context, options: Options, stream: Stream, jobs: Sequence[int]) -> None:
    """Log that these pending jobs are done. They leave the stream unless they are kept or another group needs them, and
    free the dedup IDs that they hold.

    Same as XACKDEL with ACKED, or XACK. A job may be named twice: a caller that was interrupted while leaving the job's
    block may have entered it again.
    """
    ctx.effects += let_go(ctx, options, stream, jobs)
    if len(jobs) == 1:
        ctx.effects.append(_one_done(ctx.db, options, stream, jobs[0]))
        return
    name = options.group_key
    done = sorted(set(jobs))
    gone = [] if options.keeps else done
    if len(stream.groups) > 1:
        gone = [job for job in gone if not still_referenced(stream, name, job)]
    log_acked(ctx, options.key, stream, name, pack(done), gone)


def _one_done(db: int, options: Options, stream: Stream, job: int) -> Effect:
    """The effect of `log_done` for one job."""
    name = options.group_key
    if not options.keeps and (len(stream.groups) == 1 or not still_referenced(stream, name, job)):
        place = stream.find(job)
        if place is not None:
            return XACKDEL, db, options.key, name, pack_one(job), place
    return XACK, db, options.key, name, pack_one(job)


def ack(delivery: Delivery, job: int, row: EntryRow, count: int, ctx: Context) -> bool:
    """Log that one job of a delivery is done. The most frequent end, so it does without `Held`."""
    options, known = delivery.options, delivery.known
    stream = ctx.stream(options.key)
    group = None if stream is None else stream.groups.get(options.group_key)
    if stream is None or group is None or not holds(group, delivery.worker, job, count):
        return False
    if stream.idmp is not None or options.priority:
        ctx.effects += let_go(ctx, options, stream, (job,))
    ctx.effects.append(_one_done(ctx.db, options, stream, job))
    if known.extended or count > 1:
        known.fresh(ctx, options, stream, group)
        known.drop_notes(ctx, options, (job,))
        known.failed.pop(job, None)
        known.let_others_in()
    if known.limited:
        known.freed((job,))
    if known.progress:
        ctx.effects += progressing.ended(ctx, known.progress, (job,))
    if known.results.asked:
        known.ended([first_id(job, row)])
    return True


def _done_words(options: Options, job: int) -> Words:
    if options.keeps:
        return [[b"XACK", options.key, options.group_key, ids.text(job)]]
    return [
        [b"XACKDEL", options.key, options.group_key, b"ACKED", b"IDS", b"1", ids.text(job)],
    ]


def _undeferred(known: Known, options: Options, job: int) -> Words:
    deferral = known.extended.get(job) or known.paused.get(job)
    if deferral is None or not deferral.entry:
        return []
    return [[b"XDEL", options.holds_key, ids.text(deferral.entry)]]


def done_and(held: Held, ctx: Context, adds: Callable[[Context], Words]) -> Words | None:
    """Mark a job as done and put what `adds` returns. `adds` is called first and may raise."""
    if held.find(ctx) is None:
        return None
    put = adds(ctx)
    return [*_left(held, ctx), *put]


def done_with(held: Held, ctx: Context, result: bytes, ttl_ms: int) -> Words | None:
    """Mark a job as done and store its result for `ttl_ms`."""
    if held.find(ctx) is None:
        return None
    first = first_id(held.job, held.row)
    return [*_left(held, ctx), result_words(held.options, first, result, ctx.now + ttl_ms)]


def _left(held: Held, ctx: Context) -> Words:
    """The commands that remove a job from the queue."""
    known, options, job = held.known, held.options, held.job
    gone = _undeferred(known, options, job)
    known.extended.pop(job, None)
    known.failed.pop(job, None)
    if known.limited:
        known.freed((job,))
    known.let_others_in()
    known.ended([first_id(job, held.row)])
    stream = ctx.stream(options.key)
    assert stream is not None
    freed = let_go(ctx, options, stream, (job,)) + progressing.ended(ctx, known.progress, (job,))
    free = map(Decided, freed)
    return [*free, *_done_words(options, job), *gone]


# --- failed


def nack(
    held: Held, ctx: Context, error: str, trace: str, delay: float | None, chance: float
) -> Words | None:
    """A delivery failed: pause the job, or after the last delivery make it a dead job."""
    options = held.options
    if held.find(ctx) is None:
        return None
    told = _failure_words(held, ctx, error, trace)
    pause = options.pause(rows.retry_of(held.row), held.count, delay, chance)
    if pause is None:
        reason = given_up(held.count, f"; the last one failed: {error}")
        return [*told, *_dead_words(held, ctx, reason, (error, trace))]
    if held.known.limited:
        held.known.freed()
    held.known.let_others_in()
    return [
        *told,
        *_defer(held, ctx, pause, held.known.pause),
        [b"XNACK", options.key, options.group_key, b"FAIL", b"IDS", b"1", ids.text(held.job)],
    ]


def fail(held: Held, ctx: Context, error: str, trace: str) -> Words | None:
    """Make a job a dead job at once."""
    if held.find(ctx) is None:
        return None
    told = _failure_words(held, ctx, error, trace)
    return [*told, *_dead_words(held, ctx, error, (error, trace))]


def release(held: Held, ctx: Context) -> Words | None:
    """Give a job back as if it had not been delivered."""
    if held.find(ctx) is None:
        return None
    options, known = held.options, held.known
    gone = _undeferred(known, options, held.job)
    known.extended.pop(held.job, None)
    known.give_back(held.job, held.count - 1)
    if known.limited:
        known.freed()
    known.let_others_in()
    return [
        *gone,
        [b"XNACK", options.key, options.group_key, b"SILENT", b"IDS", b"1", ids.text(held.job)],
    ]


def extend(held: Held, ctx: Context, seconds: float) -> Words | None:
    """Keep a job with its worker for `seconds`, whatever happens to the worker. Never shortens an earlier extension."""
    if held.find(ctx) is None:
        return None
    options, known = held.options, held.known
    claim = [b"XCLAIM", options.key, options.group_key, held.worker, b"0", ids.text(held.job)]
    words = [[*claim, b"JUSTID"]]
    promised = known.extended.get(held.job)
    if promised is None or promised.due < known.monotonic() + seconds:
        words += _defer(held, ctx, seconds, known.extended.__setitem__)
    return words


def _defer(
    held: Held, ctx: Context, seconds: float, note: Callable[[int, Deferral], None]
) -> Words:
    """Defer a job for `seconds`. Updates the cache before the unit runs: waiters are served right after it."""
    options, known = held.options, held.known
    until = ctx.now + round(seconds * 1000)
    entry = _next_entry(ctx, options.holds_key)
    gone = _undeferred(known, options, held.job)
    known.extended.pop(held.job, None)
    note(held.job, Deferral(known.monotonic() + seconds, entry))
    row = rows.deferral_row(options, held.job, until)
    return [*gone, [b"XADD", options.holds_key, b"*", *row]]


def _next_entry(ctx: Context, key: bytes) -> int:
    """The ID that XADD will give the next entry of a key. Raises ResponseError for a key of another type."""
    stream = stream_at(ctx, key)
    return next_id(0 if stream is None else stream.last_id, ctx.now)


def _failure_words(held: Held, ctx: Context, error: str, trace: str) -> Words:
    options = held.options
    held.known.remember_failure(held.job, _next_entry(ctx, options.failures_key))
    row = rows.failure_row(options, held.job, held.worker, held.count, error, trace)
    most = b"%d" % options.max_failures
    return [[b"XADD", options.failures_key, b"MAXLEN", b"=", most, b"*", *row]]


def _dead_words(held: Held, ctx: Context, reason: str, last: tuple[str, str]) -> Words:
    options = held.options
    stream_at(ctx, options.dead_key)
    earlier = failures(held.known, ctx, options, held.job)
    at = rows.moment(ctx.now)
    worker = rows.shown(held.worker)
    earlier.append(Failure(rows.text(held.job), at, worker, held.count, *last))
    held.dead = row = rows.dead_row(options, held.job, held.row, held.count, reason, earlier)
    return [[b"XADD", options.dead_key, b"*", *row], *_left(held, ctx)]


def failures(known: Known, ctx: Context, options: Options, job: int) -> list[Failure]:
    """A job's failures that are still stored, oldest first."""
    stream = stream_at(ctx, options.failures_key)
    if stream is None:
        return []
    found = ((entry, stream.get(entry)) for entry in known.failed.get(job, ()))
    return [rows.failure_of(entry, row) for entry, row in found if row is not None]
