"""Results: what workers left for the callers who put the jobs. Decisions under the store's lock.

The result of a job is the string `NAME:result:<id>`, which expires. It is written in the unit of the acknowledgement,
so a job is done with its result or not at all. <id> is the ID that `put` returned: for a delayed or redriven job that
is its `origin`.

A caller who waits for a result is parked on that key. Every end of the job signals it: the result, its death, and an
acknowledgement without a result. Whether a job without a result is still to be done is asked of its stream: that of the
delayed jobs, that of its lane, and for a job with another ID now the one that jobs/work/origins.py knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import Context, EntryRow, Group, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.jobs import rows
from tidelog.jobs.lanes import lane_of
from tidelog.jobs.options import Options
from tidelog.jobs.streams import wrong_type
from tidelog.jobs.work.later import is_delayed
from tidelog.jobs.work.origins import Origins
from tidelog.store.commit.core import Core
from tidelog.store.errors import JobFailed, NoResult, ResultLate, TidelogError

RESULT_SECONDS: Final = 3600.0  # a result is kept for so long unless the worker says otherwise
# A caller who waits looks again after this time: another client's deletion of the job wakes nobody.
LOOK_SECONDS: Final = 1.0
NO_RESULT: Final = object()  # the default of `Job.ack`, whose result may be None
NONE: Final = b"none"  # the job has ended and left no result


class Died:
    """The outcome of a job that was given up: its entry in `NAME:dead`."""

    __slots__ = ("entry", "row")

    def __init__(self, entry: int, row: EntryRow) -> None:
        self.entry, self.row = entry, row


class Found:
    """The outcome of a job with a result."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value


def result_key(options: Options, first: bytes) -> bytes:
    """The key of a result; `first` is the ID that `put` returned."""
    return options.root + b":result:" + first


def first_id(job: int, row: EntryRow) -> bytes:
    """The ID that `put` returned for this job."""
    origin = rows.origin_of(row) if len(row) > 2 else None
    return ids.text(job) if origin is None else origin


def first_id_of_dead(row: EntryRow) -> bytes:
    """The ID that `put` returned for a job, from its entry in `NAME:dead`."""
    fields = rows.fields_of(row)
    return fields.get(rows.ORIGIN) or fields.get(b"id", b"")


class Results:
    """Knowledge about the results of one queue of one open store, which all of its groups share.

    asked      a caller of this process has asked for a result, so the end of a job wakes those who wait
    moving     one of them asked for a job that has, or will have, another ID than the first one
    origins    where such jobs are
    """

    __slots__ = ("place", "asked", "moving", "origins", "__weakref__")

    def __init__(self, db: int, key: bytes) -> None:
        self.place = db, key
        self.asked = self.moving = False
        self.origins = Origins(db, key)

    def ended(self, core: Core, first: bytes) -> None:
        """[lock] A job ends in the unit under way: wake those who wait for its result."""
        db, key = self.place
        core.waiting.signal([(db, key + b":result:" + first)])
        self.origins.ended(core, first)

    def firsts(self, stream: Stream, jobs: Iterable[int]) -> Iterator[bytes]:
        """[lock] The IDs that `put` returned for jobs of a lane. If nobody has asked for one that has another ID now,
        these are taken for the present ones: to look at the entries would cost a batch.
        """
        for job in jobs:
            row = stream.get(job) if self.moving else None
            yield ids.text(job) if row is None else first_id(job, row)

    def all_ended(self, core: Core) -> None:
        """[lock] Many jobs end in the unit under way: all who wait look again."""
        db, key = self.place
        head = key + b":result:"
        core.waiting.signal(
            [at for at in core.waiting.keys if at[0] == db and at[1].startswith(head)]
        )


class Outcome:
    """A caller's question for the outcome of one job, to be decided, and decided again when the caller wakes.

    Its reply is Found, Died, NONE, or NULL_ARRAY: there is none yet, and the time is up. It may park even if the caller
    does not wait: until it is known where the job is.
    """

    __slots__ = ("job", "_core", "_results", "_options", "_timeout_ms", "_key", "_dead_from")

    def __init__(
        self, core: Core, results: Results, options: Options, job: int, timeout_ms: int | None
    ) -> None:
        """`timeout_ms`: 0 = wait for ever, None = not at all."""
        self.job = job
        self._core, self._results, self._options = core, results, options
        self._timeout_ms = timeout_ms
        self._key = result_key(options, ids.text(job))
        self._dead_from = job >> 64 << 64  # no job dies before it is put
        results.asked = True
        results.moving = results.moving or is_delayed(job)

    def __call__(self, ctx: Context) -> Reply:
        value = ctx.lookup(self._key)
        if isinstance(value, bytes):
            return Found(value)
        if value is not None:
            raise wrong_type(self._key, "string")
        died = self._died(ctx)
        if died is not None:
            return died
        may_come = self._may_come(ctx)
        if may_come is False:
            return NONE
        look_at = self._core.monotonic()
        if may_come:
            if self._timeout_ms is None:
                return NULL_ARRAY
            look_at += LOOK_SECONDS
        return Park([(ctx.db, self._key)], [b"GET"], self._timeout_ms or 0, None, look_at)

    def _died(self, ctx: Context) -> Died | None:
        dead = ctx.lookup(self._options.dead_key)
        if not isinstance(dead, Stream):
            return None
        first = ids.text(self.job)
        for entry, row in reading.between(dead, self._dead_from, MAX):
            if row is not None and first_id_of_dead(row) == first:
                return Died(entry, row)
        self._dead_from = dead.last_id + 1
        return None

    def _may_come(self, ctx: Context) -> bool | None:
        """Whether the job is still to be done; None: not known yet."""
        job, options, origins = self.job, self._options, self._results.origins
        if is_delayed(job):
            later = ctx.lookup(options.later_key)
            if isinstance(later, Stream) and later.contains(job):
                return True
        for priority in {lane_of(job), 0}:
            stream = ctx.lookup(options.lane(priority).key)
            if isinstance(stream, Stream) and self._is_unfinished(stream, job):
                return True
        self._results.moving = True
        if self._is_noted(ctx, origins):
            return True
        return self._is_noted(ctx, origins) if origins.read_on(self._core, ctx) else None

    def _is_noted(self, ctx: Context, origins: Origins) -> bool:
        """Whether the job is to be done under another ID that is known."""
        found = origins.find(ctx.state, self.job)
        return found is not None and self._is_unfinished(*found)

    def _is_unfinished(self, stream: Stream, job: int) -> bool:
        """Whether the stream has the job, and the group of the caller's queue has not finished it."""
        if not stream.contains(job):
            return False
        group: Group | None = stream.groups.get(self._options.group_key)
        return group is None or job > group.last_id or group.pending.contains(job)


def result_words(options: Options, first: bytes, value: bytes, until: int) -> list[bytes]:
    """The command that stores a result; `until` in unix ms."""
    return [b"SET", result_key(options, first), value, b"PXAT", b"%d" % until]


def missing_result(job_id: str, outcome: Died | bytes | None) -> TidelogError:
    """The error for a job without a result: it died, has ended (`NONE`), or is not done yet."""
    if isinstance(outcome, Died):
        reason = rows.shown(rows.fields_of(outcome.row).get(b"reason", b""))
        return JobFailed(job_id, reason, rows.text(outcome.entry))
    return no_result(job_id) if outcome == NONE else result_late(job_id)


def no_result(job_id: str) -> NoResult:
    """The error for a job that has ended without a result."""
    return NoResult(
        f"job {job_id} has ended and left no result, or its result has expired; a worker leaves one with "
        "job.ack(result=...)"
    )


def result_late(job_id: str) -> ResultLate:
    """The error for a job that has not ended in time."""
    return ResultLate(f"job {job_id} did not end in time; it still may")
