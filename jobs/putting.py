"""Put jobs into a queue: at once, delayed, into the lane of a priority, once for each dedup ID."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import (
    Alike,
    Context,
    EntryRow,
    decide_xadd_at,
    decide_xadd_many,
    next_id,
)
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.dedup import PRODUCER, REPLACE, WINDOW, freed, remembering, taking
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import NO_OPTIONS, JobOptions
from tidelog.jobs.lanes import (
    create_group,
    lane_of,
    log_into_lane,
    missing_groups,
    next_in_lane,
    open_lane,
)
from tidelog.jobs.rows import VALUE
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.fetch import NO_GROUP
from tidelog.jobs.work.freeing import (
    Namesake,
    find_in_window,
    find_taken,
    has_begun,
    key_of,
)
from tidelog.jobs.work.later import (
    GROUP,
    Due,
    create_words,
    delayed_words,
    find_later,
    is_delayed,
    log_delayed,
    next_later,
)
from tidelog.store.commit.batch import Decided
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Answer

# put_many puts at most this many jobs, and about UNIT_BYTES of values, in one unit.
BATCH_JOBS: Final = 1_000


class Prepared:
    """Commands that the puts before have added to the unit that is being planned.

    keys      keys of streams that were created and set up
    last      key of delayed jobs, or of a lane -> the last ID that was given there
    once      (key of the queue, dedup ID) of the jobs that are put
    ending    (key of the queue, ID) of a job that the unit ends, so that it holds no dedup ID any more
    """

    __slots__ = ("keys", "last", "once", "ending")

    def __init__(self, ending: tuple[bytes, int] | None = None) -> None:
        self.ending = ending
        self.keys: set[bytes] = set()
        self.last: dict[bytes, int] = {}
        self.once: set[tuple[bytes, bytes]] = set()


class NewJob:
    """A job for `Job.done_and` to put. `Queue.new` makes it."""

    __slots__ = ()


class Put(NewJob):
    """One job to put, at once or later.

    row    its row in the stream, without what the put itself adds
    due    when it is due; None = at once
    """

    __slots__ = ("engine", "row", "options", "due")

    def __init__(
        self,
        engine: QueueEngine,
        row: EntryRow,
        options: JobOptions = NO_OPTIONS,
        due: Due | None = None,
    ) -> None:
        self.engine, self.row, self.options, self.due = engine, row, options, due

    @property
    def dedup_id(self) -> bytes | None:
        """The dedup ID that it is put with."""
        return self.options.dedup_id

    def namesake(self, ctx: Context, ending: tuple[bytes, int] | None = None) -> int | None:
        """The ID of the job that has the same `dedup_id`, which `put` returns; None if the job is to be put.

        ending    as in `Prepared`
        """
        if self.dedup_id is None or self.options.mode == REPLACE:
            return None
        found = self._find(ctx, ending)
        return None if found is None else found.first

    def _find(self, ctx: Context, ending: tuple[bytes, int] | None) -> Namesake | None:
        """The job that has the same `dedup_id`, at once or delayed."""
        dedup_id, options = self.dedup_id, self.engine.options
        assert dedup_id is not None
        # Before all others, because it raises for a key of another type.
        found = find_in_window(ctx, options, dedup_id, options.key)
        taker = find_taken(ctx, options, dedup_id)
        if taker is not None and (options.key, taker.entry) != ending:
            return taker
        for key in (options.later_key, *(options.lane(p).key for p in self.engine.used(ctx))):
            if found is not None:
                break
            found = find_in_window(ctx, options, dedup_id, key)
        return found

    def replaced(self, ctx: Context, ending: tuple[bytes, int] | None = None) -> int | None:
        """The job that this one replaces: where it is; None if there is none."""
        if self.options.mode != REPLACE:
            return None
        found = self._find(ctx, ending)
        if found is None or has_begun(ctx, self.engine.options, found.entry):
            return None
        return found.entry

    def makes_room(self, ctx: Context, ending: tuple[bytes, int] | None = None) -> bool:
        """Whether the job that this one replaces counts against `max_depth`."""
        job = self.replaced(ctx, ending)
        return job is not None and not is_delayed(job)

    def words(self, ctx: Context, prepared: Prepared) -> list[list[bytes]]:
        """The commands that put it; none if its `dedup_id` is known. Raises CommandError for a key of another type."""
        if self.dedup_id is None:
            return self._put_words(ctx, prepared)
        place = self.engine.options.key, self.dedup_id
        if place in prepared.once or self.namesake(ctx, prepared.ending) is not None:
            return []
        prepared.once.add(place)
        return [*self._freeing_words(ctx, prepared), *self._put_words(ctx, prepared)]

    def _freeing_words(self, ctx: Context, prepared: Prepared) -> list[list[bytes]]:
        """The commands that end the job which this one replaces, and free the ID from a job that has it no more."""
        if self.options.mode != REPLACE:
            return []
        options, words = self.engine.options, list[list[bytes]]()
        found = self._find(ctx, prepared.ending)
        if found is None:
            return words
        if not has_begun(ctx, options, found.entry):
            words += self._cancel_words(ctx, found)
        if found.pid == PRODUCER:
            assert self.dedup_id is not None
            words.append(Decided(freed(ctx.db, found.key, PRODUCER, self.dedup_id, found.entry)))
        return words

    def _cancel_words(self, ctx: Context, found: Namesake) -> list[list[bytes]]:
        """The commands that delete a job which waits or is delayed."""
        options, known, job = self.engine.options, self.engine.known, found.entry
        key, text, words = key_of(options, job), ids.text(job), list[list[bytes]]()
        known.ended([ids.text(found.first)])
        if is_delayed(job):
            return [[b"XACKDEL", key, GROUP, b"ACKED", b"IDS", b"1", text]]
        stream = stream_at(ctx, key)
        assert stream is not None
        for name, group in stream.groups.items():
            if group.pending.contains(job):  # it was given back unseen
                words.append([b"XACK", key, name, text])
        lane = known.lane(lane_of(job))
        lane.paused.pop(job, None)
        if lane.limited:
            lane.freed((job,))
        return [*words, [b"XDEL", key, text]]

    def _put_words(self, ctx: Context, prepared: Prepared) -> list[list[bytes]]:
        row, key = self.row, self.engine.options.key
        if self._takes_id:
            assert self.dedup_id is not None
            row = (*row, rows.DEDUP, self.dedup_id)
        due_ms = ctx.now
        if self.due is not None:
            due_ms = self.due.by_store(self.engine.core.clocks(ctx.now))
        if self.options.ttl_ms is not None:
            row = (*row, rows.EXPIRES, b"%d" % (due_ms + self.options.ttl_ms))
        if self.due is not None:
            return self._later_words(ctx, prepared, row, self.due, due_ms)
        if self.options.priority:
            return self._lane_words(ctx, prepared, row)
        stream = ctx.stream(key)
        last = prepared.last.get(key, 0 if stream is None else stream.last_id)
        job = prepared.last[key] = next_id(last, ctx.now)
        if self.dedup_id is None:
            return [[b"XADD", key, b"*", *row]]
        words = self._remembering_words(ctx, prepared)
        if self._takes_id:
            return [*words, [b"XADD", key, ids.text(job), *row], self._taking_word(ctx, job)]
        return [*words, [b"XADD", key, b"IDMP", PRODUCER, self.dedup_id, b"*", *row]]

    @property
    def _takes_id(self) -> bool:
        """Whether the job takes its dedup ID until it is done."""
        return self.dedup_id is not None and self.options.mode != WINDOW

    def _taking_word(self, ctx: Context, job: int) -> Decided:
        """The record by which the job takes its dedup ID."""
        assert self.dedup_id is not None
        return Decided(taking(ctx.db, self.engine.options, self.dedup_id, job))

    def _remembering_words(self, ctx: Context, prepared: Prepared) -> list[list[bytes]]:
        """The commands that make the queue's stream remember dedup IDs."""
        options, words = self.engine.options, list[list[bytes]]()
        key = options.key
        if key not in prepared.keys:
            stream = ctx.stream(key)
            if stream is None:
                words.append(create_group(key, options.group_key))
            words += remembering(stream, key)
            prepared.keys.add(key)
        return words

    def _later_words(
        self, ctx: Context, prepared: Prepared, row: EntryRow, due: Due, due_ms: int
    ) -> list[list[bytes]]:
        options, words = self.engine.options, list[list[bytes]]()
        key = options.later_key
        stream = stream_at(ctx, key)
        if key not in prepared.keys:
            if stream is None or GROUP not in stream.groups:
                words.append(create_words(options))
            words += remembering(stream, key)
            prepared.keys.add(key)
        if self._takes_id:
            words += self._remembering_words(ctx, prepared)
        last = prepared.last.get(key, 0 if stream is None else stream.last_id)
        job = prepared.last[key] = next_later(last, ctx.now)
        words.append([b"XADD", key, ids.text(job), *row])
        if self._takes_id:
            words.append(self._taking_word(ctx, job))
        elif self.dedup_id is not None:
            words.append([b"XIDMPRECORD", key, PRODUCER, self.dedup_id, ids.text(job)])
        words.append(delayed_words(options, job, due.moment(ctx.now), due.kind))
        self.engine.known.later.hear(self.engine.core, due_ms, ctx.now)
        return words

    def _lane_words(self, ctx: Context, prepared: Prepared, row: EntryRow) -> list[list[bytes]]:
        engine, words = self.engine, list[list[bytes]]()
        key = engine.options.lane(self.options.priority).key
        stream = stream_at(ctx, key)
        last = prepared.last.get(key, 0 if stream is None else stream.last_id)
        if key not in prepared.last:
            words += missing_groups(ctx, engine.options.key, key)
        job = prepared.last[key] = next_in_lane(last, ctx.now, self.options.priority)
        words.append([b"XADD", key, ids.text(job), *row])
        if self._takes_id:
            words = [*self._remembering_words(ctx, prepared), *words, self._taking_word(ctx, job)]
        elif self.dedup_id is not None:
            if key not in prepared.keys:
                words += remembering(stream, key)
                prepared.keys.add(key)
            words.append([b"XIDMPRECORD", key, PRODUCER, self.dedup_id, ids.text(job)])
        engine.known.later.hear_lane(engine.core, self.options.priority)
        return words

    def made(self, prepared: Prepared) -> int:
        """The ID that `words` has just given to the job."""
        options = self.engine.options
        key = options.later_key if self.due is not None else options.lane(self.options.priority).key
        return prepared.last[key]


def rows_of(values: list[bytes], options: JobOptions) -> list[EntryRow] | Alike:
    """Rows of jobs with these values; Alike if they have nothing else."""
    tail = options.tail
    return [(VALUE, value, *tail) for value in values] if tail else Alike(VALUE, values)


def expiring(given: list[EntryRow] | Alike, due_ms: int, ttl: int | None) -> list[EntryRow] | Alike:
    """Rows of jobs that are due at `due_ms`, with the time after which they are not delivered any more."""
    if ttl is None:
        return given
    until = b"%d" % (due_ms + ttl)
    if isinstance(given, Alike):
        return [(given.name, value, rows.EXPIRES, until) for value in given.values]
    return [(*row, rows.EXPIRES, until) for row in given]


@dataclass(slots=True)
class Attempt:
    """Try to put one job, with all options: the plan of a unit.

    id       its ID, or that of the job which has its dedup ID; None if there is no room
    waits    the caller that waits for room, if there is none
    """

    put: Put
    caller: Callable[[], Caller] | None
    id: int | None = None
    waits: Caller | None = None

    def __call__(self, ctx: Context) -> list[list[bytes]] | None:
        """[lock] The commands that put it; None if nothing is to be put."""
        put, engine = self.put, self.put.engine
        self.id = put.namesake(ctx)
        if self.id is not None:
            return None
        if put.due is None and engine.room(ctx, 1) + put.makes_room(ctx) <= 0:
            self.waits = engine.queue_up(self.caller)
            return None
        prepared = Prepared()
        words = put.words(ctx, prepared)
        self.id = put.made(prepared)
        return words


@dataclass(slots=True)
class AttemptMany:
    """Try to put jobs with these encoded values: the decision of a unit, which puts as many as there is room for.

    waits    the caller that waits for room, if there is none
    """

    engine: QueueEngine
    values: list[bytes]
    options: JobOptions
    due: Due | None
    caller: Callable[[], Caller] | None
    waits: Caller | None = None

    def __call__(self, ctx: Context) -> Reply:
        """[lock] Log the put. Returns how many are put, or NO_GROUP if it needs `create_later`."""
        engine, values, options = self.engine, self.values, self.options
        if self.due is not None:
            given = rows_of(values, options)
            made = log_put_delayed(engine, ctx, self.due, given, options.ttl_ms)
            return NO_GROUP if made is NO_GROUP else len(values)
        room = engine.room(ctx, len(values)) if engine.bounded else len(values)
        if room <= 0:
            self.waits = engine.queue_up(self.caller)
            return 0
        log_values(engine, ctx, values if room == len(values) else values[:room], options)
        return room


def put_aside(
    engine: QueueEngine, value: bytes, options: JobOptions, due: Due | None
) -> tuple[Any, Any]:
    """Put one job without a dedup ID that is delayed or has a priority, into an unbounded queue: (ID, promise)."""
    row = options.row(value)
    if due is not None:
        return put_delayed(engine, due, [row], options.ttl_ms)
    first, promise = engine.decided(
        lambda ctx: log_put_into_lane(engine, ctx, options.priority, [row], options.ttl_ms)
    )
    return rows.text(first), promise


def log_values(engine: QueueEngine, ctx: Context, batch: list[bytes], options: JobOptions) -> None:
    """[lock] Log that jobs with these values are put, due at once."""
    given = rows_of(batch, options)
    if isinstance(given, Alike) or not options.priority:
        decide_xadd_many(ctx, engine.options.key, expiring(given, ctx.now, options.ttl_ms))
    else:
        log_put_into_lane(engine, ctx, options.priority, given, options.ttl_ms)


def log_put_into_lane(
    engine: QueueEngine, ctx: Context, priority: int, given: list[EntryRow], ttl: int | None
) -> int:
    """[lock] Log that jobs are put into the lane of a priority. Returns the first ID."""
    core, options = engine.core, engine.options
    open_lane(core, ctx, options, priority)
    first = log_into_lane(ctx, options, priority, expiring(given, ctx.now, ttl))
    engine.known.later.hear_lane(core, priority)
    return first


def put_delayed(
    engine: QueueEngine, due: Due, given: list[EntryRow] | Alike, ttl: int | None
) -> tuple[Any, Any]:
    """Put delayed jobs without dedup IDs as one unit: (ID of the first one, promise)."""
    first, promise = created(
        engine, partial(log_put_delayed, engine, due=due, given=given, ttl=ttl)
    )
    return rows.text(first), promise


def created(engine: QueueEngine, work: Callable[[Context], Reply]) -> Answer:
    """The answer of a decision, made again once `create_later` was done if it needs that."""
    while True:
        answer = engine.decided(work)
        if answer[0] is not NO_GROUP:
            return answer
        create_later(engine)


def log_put_delayed(
    engine: QueueEngine, ctx: Context, due: Due, given: list[EntryRow] | Alike, ttl: int | None
) -> Reply:
    """[lock] Log the put of delayed jobs. Returns the first ID, or NO_GROUP if it needs `create_later`."""
    options = engine.options
    found = find_later(ctx, options)
    if found is None:
        return NO_GROUP
    stream, now = found[0], ctx.now
    due_ms = due.by_store(engine.core.clocks(now))
    some = expiring(given, due_ms, ttl)
    first = next_later(stream.last_id, now)
    if len(some) == 1 and not isinstance(some, Alike):
        decide_xadd_at(ctx, options.later_key, first, some[0])
    else:
        decide_xadd_many(ctx, options.later_key, some, first)
    log_delayed(ctx, options, stream, first, len(some), due.moment(now), due.kind)
    engine.known.later.hear(engine.core, due_ms, now)
    return first


def create_later(engine: QueueEngine) -> None:
    """Create the stream of delayed jobs if it is missing."""
    options = engine.options

    def create(ctx: Context) -> list[list[bytes]] | None:
        return [create_words(options)] if find_later(ctx, options) is None else None

    engine.unit(create)
