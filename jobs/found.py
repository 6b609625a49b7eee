"""Found: where a job is, and what became of it. One decision, under the store's lock."""

from __future__ import annotations

from tidelog.engine.api import NOBODY, Context, EntryRow, Group
from tidelog.engine.reply import Park, Reply
from tidelog.jobs import rows
from tidelog.jobs.due import known_of_lane
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import Lane, lanes_in
from tidelog.jobs.status import CANCELLED, DEAD, DELAYED, DONE, PAUSED, RUNNING, WAITING, JobStatus
from tidelog.jobs.work.cancelling import find_cancelled
from tidelog.jobs.work.known import Known
from tidelog.jobs.work.later import find_later
from tidelog.jobs.work.progressing import progress_of
from tidelog.jobs.work.results import Died, Found, Outcome
from tidelog.jobs.work.settle import failures


class Finding(Outcome):
    """A caller's question for the status of one job. Its reply is a JobStatus, or None if nothing of it is left.

    It parks, as `Outcome` does, until it is known where the job is.
    """

    __slots__ = ("_engine",)

    def __init__(self, engine: QueueEngine, job: int) -> None:
        super().__init__(engine.core, engine.known.results, engine.options, job, None)
        self._engine = engine

    def __call__(self, ctx: Context) -> Reply:
        engine = self._engine
        cancelled = find_cancelled(ctx.state, ctx.db, engine.options, self.job)
        if cancelled is not None:
            status = dead_status(engine, rows.text(self.job), *cancelled, CANCELLED)
            told: Reply = status  # a JobStatus is the reply of this question only
            return told
        outcome = super().__call__(ctx)
        found: Reply = outcome if isinstance(outcome, Park) else self._status(ctx, outcome)
        return found

    def _status(self, ctx: Context, outcome: Reply) -> JobStatus | None:
        first = rows.text(self.job)
        if isinstance(outcome, Died):
            return dead_status(self._engine, first, outcome.entry, outcome.row)
        there = self._delayed(ctx) or self._in_lane(ctx, first)
        if isinstance(outcome, Found):  # a worker left it; the entry may be kept
            row = () if there is None else there.row
            present = None if there is None else there.present_id
            return JobStatus(first, DONE, present, row, result_raw=outcome.value)
        return there

    def _delayed(self, ctx: Context) -> JobStatus | None:
        later = find_later(ctx, self._engine.options)
        row = None if later is None else later[0].get(self.job)
        if later is None or row is None:
            return None
        return delayed_status(self._engine, ctx, later[1], self.job, row)

    def _in_lane(self, ctx: Context, first: str) -> JobStatus | None:
        """The status of a job whose entry is in a lane, under its first ID or another one."""
        moved = self._engine.known.results.origins.find(ctx.state, self.job)
        present = self.job if moved is None else moved[1]
        for lane in lanes_in(ctx.state, ctx.db, self._engine.options):
            row = lane.stream.get(present)
            if row is not None:
                known = None if lane.group is None else known_of_lane(self._engine, ctx, lane)
                return entry_status(ctx, lane, known, first, present, row)
        return None


def delayed_status(
    engine: QueueEngine, ctx: Context, group: Group, job: int, row: EntryRow
) -> JobStatus:
    """[lock] The status of a job in the stream of the delayed ones, whose group this is."""
    first = rows.text(job)
    due, shown = engine.known.later.due_of(engine.core, group, job, ctx.now)
    if due <= ctx.now:
        return JobStatus(first, WAITING, first, row, 0)
    return JobStatus(first, DELAYED, first, row, 0, due_at=rows.moment(shown))


def entry_status(
    ctx: Context, lane: Lane, known: Known | None, first: str, present: int, row: EntryRow
) -> JobStatus:
    """[lock] The status of a job whose entry is in a lane, of which this process knows `known`; None: the group is
    missing there.
    """
    now_id, group = rows.text(present), lane.group
    if group is None or known is None or present > group.last_id:
        return JobStatus(first, WAITING, now_id, row, 0)
    pending = group.pending.get(present)
    if pending is None:
        return JobStatus(first, DONE, now_id, row)
    _, owner, count = pending
    told = tuple(failures(known, ctx, lane.options, present))
    come = progress_of(ctx.state, ctx.db, lane.options, first)
    deferral = known.paused.get(present)
    left = 0.0 if deferral is None else deferral.due - known.monotonic()
    if owner != NOBODY:
        worker = _name_of(group, owner)
        return JobStatus(first, RUNNING, now_id, row, count, worker, failures=told, progress=come)
    worker = told[-1].worker if told else None
    if left <= 0:
        return JobStatus(first, WAITING, now_id, row, count, worker, failures=told, progress=come)
    due_at = rows.moment(ctx.now + round(left * 1000))
    state = PAUSED
    return JobStatus(first, state, now_id, row, count, worker, due_at, failures=told, progress=come)


def dead_status(
    engine: QueueEngine, first: str, entry: int, row: EntryRow, state: str = DEAD
) -> JobStatus:
    """The status of a dead job, by its entry in `NAME:dead`, or of a cancelled one by that in `NAME:cancels`."""
    dead = rows.DeadJob(entry, row, engine.options.codec, engine.options.name)
    worker = dead.workers[-1] if dead.workers else None
    return JobStatus(
        *(
            first,
            state,
            dead.original_id if state == CANCELLED else dead.id,
            row,
            dead.deliveries,
            worker,
            None,
        ),
        *(dead.reason, tuple(dead.errors)),
    )


def _name_of(group: Group, owner: int) -> str | None:
    found = group.owners[owner]
    return None if found is None else rows.shown(found.name)
