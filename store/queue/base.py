"""The queue without waiting: the common part of the faces for threads and for asyncio."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import count, islice
from typing import Any, Final, Generic

from tidelog.engine import ids
from tidelog.engine.api import (
    Alike,
    Context,
    EntryRow,
    Group,
    State,
    Stream,
    decide_xadd_at,
    decide_xadd_many,
    log_acked,
    log_claim,
    reading,
)
from tidelog.engine.errors import CommandError
from tidelog.engine.idlist import pack
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Caller, Holder
from tidelog.store.commit.core import Answer
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import (
    DataError,
    EncodeError,
    QueueFull,
    TidelogError,
    from_command,
)
from tidelog.store.faces.face import Face
from tidelog.store.queue import rows
from tidelog.store.queue.dedup import PRODUCER, remembering
from tidelog.store.queue.lanes import (
    HIGHEST_FIRST,
    Lane,
    create_group,
    depth_of,
    lanes_in,
    log_into_lane,
    missing_groups,
    next_in_lane,
    open_lane,
    totals,
)
from tidelog.store.queue.options import Options, named, positive, ranked
from tidelog.store.queue.rows import VALUE, Failure, WaitingJob
from tidelog.store.queue.stats import Stats
from tidelog.store.queue.streams import lost_of, stream_at, waiting
from tidelog.store.queue.typed import T
from tidelog.store.queue.units import UNIT_BYTES, in_units
from tidelog.store.queue.work.fetch import NO_GROUP
from tidelog.store.queue.work.later import (
    AT,
    CONSUMER,
    GROUP,
    Due,
    create_words,
    delayed_words,
    due_of,
    find_later,
    later_of,
    log_delayed,
    next_later,
    time_of,
)
from tidelog.store.queue.work.leases import leases_of
from tidelog.store.queue.work.results import Found, Outcome, missing_result
from tidelog.store.queue.work.retention import SWEEP_JOBS, sweep
from tidelog.store.queue.work.shared import Shared

# put_many puts at most this many jobs, and about UNIT_BYTES of values, in one unit.
BATCH_JOBS: Final = 1_000
# A putter that waits for room looks again after this time: if a client acknowledges jobs by a plain XACK, nothing wakes
# the putter.
ROOM_SECONDS: Final = 1.0
PURGE_JOBS: Final = 1_000  # jobs that one unit deletes

log = logging.getLogger("tidelog.queue")
_numbers = count(1)


class Prepared:
    """Commands that the puts before have added to the unit that is being planned.

    keys      keys of streams that were created and set up
    last      key of delayed jobs, or of a lane -> the last ID that was given there
    once      (key of the queue, dedup ID) of the jobs that are put
    """

    __slots__ = ("keys", "last", "once")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.last: dict[bytes, int] = {}
        self.once: set[tuple[bytes, bytes]] = set()


class Put:
    """A job that `Job.done_and` is to put. `Queue.new` makes it; its members are for the queue only.

    due     when it is due; None = at once
    ttl     ms after which it is not delivered any more, counted from when it is due; None = for ever

    Its row says its priority, too.
    """

    __slots__ = ("queue", "row", "dedup_id", "due", "ttl", "priority")

    def __init__(
        self,
        queue: QueueBase,
        row: EntryRow,
        dedup_id: bytes | None,
        due: Due | None = None,
        ttl: int | None = None,
        priority: int = 0,
    ) -> None:
        self.queue, self.row, self.dedup_id = queue, row, dedup_id
        self.due, self.ttl, self.priority = due, ttl, priority

    def known(self, ctx: Context) -> int | None:
        """The ID of the job that was put with the same `dedup_id`, at once or delayed; None if there is none."""
        if self.dedup_id is None:
            return None
        options = self.queue._options
        streams = [ctx.stream(options.key), stream_at(ctx, options.later_key)]
        for priority in self.queue._used(ctx):
            streams.append(stream_at(ctx, options.lane(priority).key))
        for stream in streams:
            if stream is not None and stream.idmp is not None:
                found = stream.idmp.lookup(PRODUCER, self.dedup_id, ctx.now)
                if found is not None:
                    return found
        return None

    def words(self, ctx: Context, prepared: Prepared) -> list[list[bytes]]:
        """The commands that put it; none if its `dedup_id` is known. Raises CommandError for a key of another type."""
        options, row, key = self.queue._options, self.row, self.queue._key
        if self.dedup_id is not None:
            place = key, self.dedup_id
            if place in prepared.once or self.known(ctx) is not None:
                return []
            prepared.once.add(place)
        due_ms = ctx.now if self.due is None else self.due.moment(ctx.now)
        if self.ttl is not None:
            row = (*row, rows.EXPIRES, b"%d" % (due_ms + self.ttl))
        if self.due is not None:
            return self._later_words(ctx, prepared, row, due_ms, self.due.kind)
        if self.priority:
            return self._lane_words(ctx, prepared, row)
        stream = ctx.stream(key)
        if self.dedup_id is None:
            return [[b"XADD", key, b"*", *row]]
        words: list[list[bytes]] = []
        if key not in prepared.keys:
            if stream is None:
                words.append(create_group(key, options.group_key))
            words += remembering(stream, key)
            prepared.keys.add(key)
        return [*words, [b"XADD", key, b"IDMP", PRODUCER, self.dedup_id, b"*", *row]]

    def _later_words(
        self, ctx: Context, prepared: Prepared, row: EntryRow, due_ms: int, kind: int
    ) -> list[list[bytes]]:
        options, words = self.queue._options, list[list[bytes]]()
        key = options.later_key
        stream = stream_at(ctx, key)
        if key not in prepared.keys:
            if stream is None or GROUP not in stream.groups:
                words.append(create_words(options))
            words += remembering(stream, key)
            prepared.keys.add(key)
        last = prepared.last.get(key, 0 if stream is None else stream.last_id)
        job = prepared.last[key] = next_later(last, ctx.now)
        words.append([b"XADD", key, ids.text(job), *row])
        if self.dedup_id is not None:
            words.append([b"XIDMPRECORD", key, PRODUCER, self.dedup_id, ids.text(job)])
        words.append(delayed_words(options, job, due_ms, kind))
        self.queue._shared.later.hear(self.queue._core, due_ms, ctx.now)
        return words

    def _lane_words(self, ctx: Context, prepared: Prepared, row: EntryRow) -> list[list[bytes]]:
        queue, words = self.queue, list[list[bytes]]()
        key = queue._options.lane(self.priority).key
        stream = stream_at(ctx, key)
        last = prepared.last.get(key, 0 if stream is None else stream.last_id)
        if key not in prepared.last:
            words += missing_groups(ctx, queue._key, key)
        job = prepared.last[key] = next_in_lane(last, ctx.now, self.priority)
        words.append([b"XADD", key, ids.text(job), *row])
        if self.dedup_id is not None:
            if key not in prepared.keys:
                words += remembering(stream, key)
                prepared.keys.add(key)
            words.append([b"XIDMPRECORD", key, PRODUCER, self.dedup_id, ids.text(job)])
        queue._shared.later.hear_lane(queue._core, self.priority)
        return words

    def made(self, prepared: Prepared) -> int | None:
        """The ID that `words` has just given to the job; None if XADD gives it."""
        options = self.queue._options
        key = options.later_key if self.due is not None else options.lane(self.priority).key
        return prepared.last.get(key)


def rows_of(values: list[bytes], priority: int, key: str | None) -> list[EntryRow] | Alike:
    """Rows of jobs with these values, one priority and one key; Alike if they have neither."""
    tail = rows.tail_of(priority, key)
    return [(VALUE, value, *tail) for value in values] if tail else Alike(VALUE, values)


def expiring(given: list[EntryRow] | Alike, due_ms: int, ttl: int | None) -> list[EntryRow] | Alike:
    """Rows of jobs that are due at `due_ms`, with the time after which they are not delivered any more."""
    if ttl is None:
        return given
    until = b"%d" % (due_ms + ttl)
    if isinstance(given, Alike):
        return [(given.name, value, rows.EXPIRES, until) for value in given.values]
    return [(*row, rows.EXPIRES, until) for row in given]


def lifetime(ttl: Duration | None) -> int | None:
    """The argument `ttl` in ms, at least 1. Raises DataError."""
    return None if ttl is None else max(1, round(seconds("ttl", ttl) * 1000))


def told(face: Face, answer: Answer) -> Any:
    """The result of an answer, once its promise holds. For threads."""
    found, promise = answer
    face._hold(promise)
    return found


class QueueBase(Generic[T]):
    """The common part of both faces of a queue."""

    _here: Callable[[], Holder]  # the running thread or task

    def __init__(self, face: Face, options: Options) -> None:
        self._face = face
        self._core = face._core
        self._db: int = face._db
        self._options = options
        self._key = options.key
        self._encode, self._decode = options.codec.encode, options.codec.decode
        self._raw = options.codec.name == "bytes"  # bytes need no encoding
        self._leases = leases_of(self._core)
        self._shared = self._leases.of(self._core, self._db, options)
        self._bounded, self._keeps = options.max_depth is not None, options.keeps
        self._own_worker: str | None = None

    @property
    def name(self) -> str:
        """Name of the queue, the key of its stream."""
        return self._options.name

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._options.group

    @property
    def store(self) -> Any:
        """The open store that holds the queue."""
        return self._face

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, group {self.group!r}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a queue cannot be pickled: it belongs to its open store; open the store in the other process"
        )

    # --- putting

    def new(
        self,
        value: T,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> Put:
        """A job for `Job.done_and` to put.

        Args:
            value: As in `Queue.put`.
            dedup_id: As in `Queue.put`.
            headers: As in `Queue.put`.
            delay: As in `Queue.put`.
            at: As in `Queue.put`.
            ttl: As in `Queue.put`.
            priority: As in `Queue.put`.
            key: As in `Queue.put`.

        Raises:
            EncodeError: The codec cannot encode the value.
            DataError: Another argument is invalid.
        """
        row = rows.job_row(rows.encode_value(self._options, value), headers, ranked(priority), key)
        once = None if dedup_id is None else named("dedup_id", dedup_id)
        return Put(self, row, once, self._due_at(delay, at), lifetime(ttl), priority)

    def _due_at(self, delay: Duration | None, at: datetime | None) -> Due | None:
        core = self._core
        return due_of(delay, at, max(core.now, core.time_ns() // 1_000_000))

    def _put_once(self, put: Put, caller: Callable[[], Caller] | None) -> tuple[Any, Caller | None]:
        """Try to put one job, with all options: ((ID, promise), None), or (None, the caller that waits for room)."""
        waiting_caller = None
        known: int | None = None

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal waiting_caller, known
            known = put.known(ctx)
            if known is not None:
                return None
            if put.due is None and self._room(ctx, 1) <= 0:
                waiting_caller = self._queue_up(caller)
                return None
            prepared = Prepared()
            words = put.words(ctx, prepared)
            known = put.made(prepared)
            return words

        reply, promise = self._ask(run_unit, self._core, self._db, plan)
        if known is not None:
            return (rows.text(known), promise), None
        if reply is None:
            return None, waiting_caller
        return (rows.shown(reply[-1]), promise), None

    def _put_aside(
        self,
        value: T,
        headers: Mapping[str, str] | None,
        delay: Duration | None,
        at: datetime | None,
        ttl: Duration | None,
        priority: int,
        key: str | None,
        unbounded: bool,
    ) -> tuple[Any, Any] | None:
        """Put one job without a dedup ID that is delayed or, if `unbounded`, has a priority: (ID, promise). None if it
        is neither; nothing was put.
        """
        due = self._due_at(delay, at)
        if due is None and not (unbounded and priority):
            return None
        row = rows.job_row(rows.encode_value(self._options, value), headers, ranked(priority), key)
        if due is not None:
            return self._put_delayed(due, [row], lifetime(ttl))
        work = partial(self._log_into_lane, priority=priority, given=[row], ttl=lifetime(ttl))
        first, promise = self._ask(self._core.decided, self._db, work)
        return rows.text(first), promise

    def _log_into_lane(
        self, ctx: Context, priority: int, given: list[EntryRow], ttl: int | None
    ) -> int:
        """[lock] Log that jobs are put into the lane of a priority. Returns the first ID."""
        core, options = self._core, self._options
        open_lane(core, ctx, options, priority)
        first = log_into_lane(ctx, options, priority, expiring(given, ctx.now, ttl))
        self._shared.later.hear_lane(core, priority)
        return first

    def _put_delayed(
        self, due: Due, given: list[EntryRow] | Alike, ttl: int | None
    ) -> tuple[Any, Any]:
        """Put delayed jobs without dedup IDs as one unit: (ID of the first one, promise)."""
        work = partial(self._log_put, due=due, given=given, ttl=ttl)
        while True:
            reply, promise = self._ask(self._core.decided, self._db, work)
            if reply is not NO_GROUP:
                return rows.text(reply), promise
            self._create_later()

    def _log_put(
        self, ctx: Context, due: Due, given: list[EntryRow] | Alike, ttl: int | None
    ) -> Reply:
        """[lock] Log the put of delayed jobs. Returns the first ID, or NO_GROUP if it needs `_create_later`."""
        options = self._options
        found = find_later(ctx, options)
        if found is None:
            return NO_GROUP
        stream, now = found[0], ctx.now
        due_ms = due.moment(now)
        some = expiring(given, due_ms, ttl)
        first = next_later(stream.last_id, now)
        if len(some) == 1 and not isinstance(some, Alike):
            decide_xadd_at(ctx, options.later_key, first, some[0])
        else:
            decide_xadd_many(ctx, options.later_key, some, first)
        log_delayed(ctx, options, stream, first, len(some), due_ms, due.kind)
        self._shared.later.hear(self._core, due_ms, now)
        return first

    def _create_later(self) -> None:
        """Create the stream of delayed jobs if it is missing."""
        options = self._options

        def create(ctx: Context) -> list[list[bytes]] | None:
            return [create_words(options)] if find_later(ctx, options) is None else None

        self._ask(run_unit, self._core, self._db, create)

    def _room(self, ctx: Context, wanted: int) -> int:
        """How many of the `wanted` jobs there is room for."""
        if self._options.max_depth is None:
            return wanted
        ctx.stream(self._key)  # raises for a key of another type
        there = depth_of(ctx.state, self._db, self._options, self._used(ctx))
        return min(wanted, self._options.max_depth - there)

    def _used(self, ctx: Context) -> tuple[int, ...]:
        """[lock] The priorities above 0 that have a lane."""
        return self._shared.later.lanes(self._core, ctx, self._options)

    def _queue_up(self, caller: Callable[[], Caller] | None) -> Caller | None:
        if caller is None:
            return None
        made = caller()
        self._shared.room[made] = None
        return made

    def _nap(self, deadline: float | None) -> float | None:
        """Seconds that a putter may sleep before it tries again. None: until it is woken. 0: its time is up."""
        left = None if deadline is None else max(0.0, deadline - self._core.monotonic())
        if left == 0 or not self._core.clock.manual:
            return ROOM_SECONDS if left is None else min(left, ROOM_SECONDS)
        return None

    def _full(self, stored: int = 0) -> QueueFull:
        before = f"; {stored} values were put before it filled up" if stored else ""
        error = QueueFull(
            f"queue {self.name!r} is full: it has {self._options.max_depth} unfinished jobs, as many as "
            f"max_depth allows{before}"
        )
        error.stored = stored
        return error

    def _put_values(
        self,
        batch: list[bytes],
        due: Due | None,
        ttl: int | None,
        priority: int,
        key: str | None,
        caller: Callable[[], Caller] | None,
    ) -> tuple[int, Any, Caller | None]:
        """Put as many of these encoded values as there is room for, in one unit: (how many, promise, waiting
        caller).
        """
        if due is not None:
            _, promise = self._put_delayed(due, rows_of(batch, priority, key), ttl)
            return len(batch), promise, None
        waiting_caller = None

        def work(ctx: Context) -> Reply:
            nonlocal waiting_caller
            room = self._room(ctx, len(batch)) if self._bounded else len(batch)
            if room <= 0:
                waiting_caller = self._queue_up(caller)
                return 0
            some = batch if room == len(batch) else batch[:room]
            self._log_values(ctx, some, priority, key, ttl)
            return room

        stored, promise = self._ask(self._core.decided, self._db, work)
        return stored, promise, waiting_caller

    def _log_values(
        self,
        ctx: Context,
        batch: list[bytes],
        priority: int,
        key: str | None,
        ttl: int | None,
    ) -> None:
        """[lock] Log that jobs with these values are put, due at once."""
        given = rows_of(batch, priority, key)
        if isinstance(given, Alike) or not priority:
            decide_xadd_many(ctx, self._key, expiring(given, ctx.now, ttl))
        else:
            self._log_into_lane(ctx, priority, given, ttl)

    def _batches(self, values: Iterable[Any]) -> Iterator[tuple[list[bytes], Exception | None]]:
        """The encoded values of put_many in batches; the last one comes with the error that ended them, if any."""
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise DataError(f"put_many needs an iterable of values, not {type(values).__name__!r}")
        source = iter(values)
        error: Exception | None = None
        while error is None:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(source, BATCH_JOBS))  # keeps the values before an error
            except Exception as broken:
                error = broken
            if not chunk and error is None:
                return
            if self._raw and set(map(type, chunk)) == {bytes}:
                encoded = chunk
            else:
                try:
                    encoded = list(map(self._encode, chunk))
                except Exception:
                    encoded, refused = self._encode_until(chunk)
                    error = refused or error
            if sum(map(len, encoded)) <= UNIT_BYTES:
                yield encoded, error
            else:
                *parts, last = in_units(encoded, len)
                yield from ((part, None) for part in parts)
                yield last, error

    def _encode_until(self, chunk: list[Any]) -> tuple[list[bytes], EncodeError | None]:
        encoded: list[bytes] = []
        for value in chunk:
            try:
                encoded.append(rows.encode_value(self._options, value))
            except EncodeError as error:
                return encoded, error
        return encoded, None  # the codec failed only once

    # --- consuming

    def _value(self, row: EntryRow) -> Any:
        """The value of a job's row, in any form that is valid. Raises DecodeError, which says what is wrong."""
        return rows.decode_row(self._options.codec, row)

    def _worker(self, worker: Any) -> str:
        if worker is None:
            if self._own_worker is None:
                self._own_worker = f"{socket.gethostname()}-{os.getpid()}-{next(_numbers)}"
            return self._own_worker
        named("worker", worker)
        name: str = worker
        return name

    def _subscribe(self) -> Any:
        """Create the stream and the group if they are missing, the group in all lanes. Returns a promise."""
        options = self._options

        def plan(ctx: Context) -> list[list[bytes]] | None:
            keys = [options.key]
            for priority in HIGHEST_FIRST:
                key = options.lane(priority).key
                if key in ctx.database.keys:
                    keys.append(key)
            ctx.stream(options.key)  # raises CommandError for another type
            words = []
            for key in keys:
                stream = stream_at(ctx, key)
                if stream is None or options.group_key not in stream.groups:
                    words.append(create_group(key, options.group_key))
            return words or None

        _, promise = self._ask(run_unit, self._core, self._db, plan)
        return promise

    def _acknowledged(self, shared: Shared, jobs: int) -> None:
        """Count jobs of a lane that are done. Retention sweeps after every SWEEP_JOBS of them."""
        if self._options.keeps:
            shared.unswept += jobs
            self._sweep(SWEEP_JOBS)

    def _sweep(self, least: int) -> None:
        """Delete jobs that `keep` no longer covers, in the lanes in which at least `least` jobs were done since the
        last sweep.
        """
        if not self._options.keeps:
            return
        for shared in self._shared.all_lanes():
            if shared.unswept < least:
                continue
            try:
                sweep(self._core, shared, self._options.lane(shared.priority))
            except (TidelogError, CommandError) as error:
                # Do not raise: the call itself succeeded, and the next sweep tries again.
                log.warning(
                    "queue %s: old finished jobs could not be deleted: %s", self.name, error
                )

    # --- looking

    def _stats(self) -> Answer:
        options, db = self._options, self._db
        core, shared = self._core, self._shared
        mono, now = core.monotonic(), self._store_ms()

        def at(state: State) -> Stats:
            pending = unread = paused = due = length = 0
            in_flight: dict[str, int] = {}
            by_priority: dict[int, int] = {}
            oldest: list[int] = []
            for lane in lanes_in(state, db, options):
                stream, group, new = lane.stream, lane.group, waiting(lane.stream, lane.group)
                back = 0
                if group is not None:
                    back = len(self._due(state, lane))
                    paused += group.pending.nacked() - back
                    for consumer in group.listed():
                        held = group.pending.held_by(consumer.index)
                        if held:
                            name = rows.shown(consumer.name)
                            in_flight[name] = in_flight.get(name, 0) + held
                    if len(group.pending):
                        pending += len(group.pending)
                        oldest.append(group.pending.first())
                if new:
                    after = 0 if group is None else group.last_id
                    oldest += reading.between(stream, after + 1, MAX, 1).ids()
                if new + back:
                    by_priority[lane.options.priority] = new + back
                unread, due, length = unread + new, due + back, length + stream.length
            age = max(0, now - (min(oldest) >> 64)) / 1000 if oldest else None
            put, done = shared.sample(mono, *totals(state, db, options))
            later = later_of(state, db, options)
            arrived = shared.later.count_due(core, later, now)
            return Stats(
                name=options.name,
                group=options.group,
                depth=unread + pending + arrived,
                waiting=unread + due + arrived,
                in_flight=in_flight,
                paused=paused,
                scheduled=0 if later is None else len(later[1].pending) - arrived,
                dead=_length(state, db, options.dead_key),
                failures=_length(state, db, options.failures_key),
                kept=max(0, length - unread - pending),
                oldest_seconds=age,
                put_per_second=put,
                done_per_second=done,
                by_priority=by_priority,
            )

        answer: Answer = core.look(at)
        return answer

    def _due(self, state: State, lane: Lane) -> list[int]:
        """[lock] Jobs of a lane that were delivered before and are due, in delivery order."""
        stream, group, options = lane.stream, lane.group, lane.options
        if group is None or not group.pending.nacked():
            return []
        core, lane_0 = self._core, self._shared
        ctx = Context(state, core.settings)
        ctx.db, ctx.now = self._db, core.now
        # the store is read-only, and the writer cannot invalidate this process's cache
        if core.checkpoints is None:
            lane_0.stale()
        shared = lane_0.lane(options.priority)
        shared.fresh(ctx, options, stream, group)
        # Read the clock now: the times in a cache that was just read are not later.
        return shared.due(group, shared.monotonic())

    def _depth(self) -> Answer:
        core, options, now = self._core, self._options, self._store_ms()

        def at(state: State) -> int:
            later = later_of(state, self._db, options)
            arrived = self._shared.later.count_due(core, later, now)
            return totals(state, self._db, options)[1] + arrived

        answer: Answer = core.look(at)
        return answer

    def _store_ms(self) -> int:
        """The store's time without a unit, unix ms."""
        core = self._core
        return int(max(core.now, core.time_ns() // 1_000_000))

    def _peek(self, number: int, scheduled: bool) -> Answer:
        positive("count", number)
        options, shared, now = self._options, self._shared, self._store_ms()

        def at(state: State) -> list[Any]:
            later = later_of(state, self._db, options)
            arrived: list[Any] = []
            if later is not None:
                shared.later.watch_clock(self._core, now)
                for due_ms, job in shared.later.listed(later[1]):
                    if (due_ms > now) is scheduled and (row := later[0].get(job)) is not None:
                        arrived.append((job, row, due_ms if scheduled else None))
                        if len(arrived) == number:
                            break
                    elif due_ms > now and not scheduled and not shared.later.leapt:
                        break
            if scheduled:
                return arrived
            found: list[Any] = []
            lanes = {lane.options.priority: lane for lane in lanes_in(state, self._db, options)}
            for priority in (*HIGHEST_FIRST, 0):
                if priority in lanes:
                    found += self._next_in(state, lanes[priority], number - len(found))
                found += [each for each in arrived if rows.priority_of(each[1]) == priority]
                if len(found) >= number:
                    break
            return found[:number]

        answer: Answer = self._core.look(at)
        return answer

    def _next_in(self, state: State, lane: Lane, number: int) -> list[Any]:
        """[lock] The next jobs of a lane, as `_peek` gives them."""
        stream, group = lane.stream, lane.group
        due = self._due(state, lane)[:number]
        found: list[Any] = [(job, row, None) for job in due if (row := stream.get(job)) is not None]
        if len(found) < number:
            after = 0 if group is None else group.last_id
            fresh = reading.between(stream, after + 1, MAX, number - len(found))
            found += [(job, row, None) for job, row in fresh]
        return found

    def _waiting_jobs(self, found: list[Any]) -> list[WaitingJob]:
        codec = self._options.codec
        return [rows.waiting_job(codec, job, row, due) for job, row, due in found if row]

    def _failures(self, job_id: str | None, number: int) -> Answer:
        positive("count", number)
        options = self._options

        def at(state: State) -> list[Failure]:
            value = state.databases[self._db].keys.get(options.failures_key)
            found: list[Failure] = []
            if isinstance(value, Stream):
                for entry, row in reading.between(value, 0, MAX, None, reverse=True):
                    if row is None:
                        continue
                    failure = rows.failure_of(entry, row)
                    if job_id is None or failure.job_id == job_id:
                        found.append(failure)
                        if len(found) == number:
                            break
            return found

        answer: Answer = self._core.look(at)
        return answer

    # --- results

    def _outcome(self, job_id: str, wait: float | None) -> Outcome:
        """The question for the result of a job. Raises DataError."""
        timeout_ms = 0 if wait is None else max(1, round(wait * 1000)) if wait else None
        number = job_number(job_id)
        return Outcome(self._core, self._shared.results, self._options, number, timeout_ms)

    def _result(self, job_id: str, outcome: Reply) -> Any:
        """The value that a worker left. Raises JobFailed, NoResult, ResultLate, DecodeError."""
        if isinstance(outcome, Found):
            return rows.decode_result(self._options.codec, outcome.value)
        raise missing_result(job_id, outcome)

    # --- delayed jobs

    def _cancel(self, job_id: str) -> Answer:
        """Delete a delayed job: (whether it was there, promise)."""
        work = partial(self._log_cancel, number=job_number(job_id))
        answer: Answer = self._ask(self._core.decided, self._db, work)
        return answer

    def _log_cancel(self, ctx: Context, number: int) -> int:
        """[lock] Log that a delayed job is deleted. Returns 1, or 0 if it is none."""
        options = self._options
        found = find_later(ctx, options)
        if found is None or not found[1].pending.contains(number):
            return 0
        stream = found[0]
        here = [number] if stream.contains(number) else []
        self._shared.ended([ids.text(number)])
        log_acked(ctx, options.later_key, stream, GROUP, pack([number]), here)
        return len(here)

    def _move(self, job_id: str, delay: Duration | None, at: datetime | None) -> Answer:
        """Make a delayed job due at another time: (whether it was there, promise)."""
        number = job_number(job_id)
        if delay is None and at is None:
            raise DataError("move needs the new time: delay or at")
        work = partial(self._log_move, number=number, due=self._due_at(delay, at))
        answer: Answer = self._ask(self._core.decided, self._db, work)
        return answer

    def _log_move(self, ctx: Context, number: int, due: Due | None) -> int:
        """[lock] Log the new time of a delayed job; None = now. Returns 1, or 0 if it is none."""
        options = self._options
        found = find_later(ctx, options)
        if found is None or not found[1].pending.contains(number):
            return 0
        now = ctx.now
        due_ms = now if due is None else due.moment(now)
        # The delay of a moved job is counted from the move, but leaps of the clock from its put, which its ID tells.
        # So it is due at a time.
        key, time = options.later_key, time_of(due_ms)
        log_claim(ctx, key, GROUP, CONSUMER, {number: AT}, time, now, ())
        self._shared.later.hear(self._core, due_ms, now)
        return 1

    # --- purging

    def _purge_some(self) -> tuple[int, Any, bool]:
        """One unit of a purge: (jobs deleted, promise, whether more are left)."""
        options = self._options
        dropped, more = 0, False

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal dropped, more
            lost = lost_of(ctx, options)
            if lost:  # their jobs cannot be counted
                more = True
                return [[b"DEL", *lost]]
            ctx.stream(options.key)
            later = find_later(ctx, options)
            if later is not None and len(later[1].pending):
                dropped, more = len(later[1].pending), True
                return [[b"DEL", options.later_key]]
            lanes = lanes_in(ctx.state, self._db, options)
            for lane in lanes:
                if lane.group is None:
                    return [create_group(lane.options.key, lane.options.group_key)]
                words, dropped = self._purge_lane(ctx, lane.options, lane.stream, lane.group)
                if dropped:
                    more = dropped == PURGE_JOBS or lane is not lanes[-1]
                    return words
            return None

        reply, promise = self._ask(self._shared.unit, partial(run_unit, self._core, self._db, plan))
        if reply is not None and not dropped:
            # the unit only created the group or deleted unreadable streams; jobs may remain
            more = True
        if dropped:
            self._shared.made_room()
        return dropped, promise, more

    def _purge_lane(
        self, ctx: Context, options: Options, stream: Stream, group: Group
    ) -> tuple[list[list[bytes]], int]:
        """[lock] The commands of one unit that purges a lane, and how many jobs they delete."""
        lane_0 = self._shared
        shared = lane_0.lane(options.priority)
        shared.fresh(ctx, options, stream, group)
        paused = list(islice((job for t, job in group.pending.by_age() if t < 0), PURGE_JOBS))
        unread = reading.between(stream, group.last_id + 1, MAX, PURGE_JOBS - len(paused))
        jobs = [*paused, *unread.ids()]
        words: list[list[bytes]] = []
        if not jobs:
            return words, 0
        if unread:
            last = unread.ids()[-1]
            read = b"%d" % (stream.entries_added - waiting(stream, group) + len(unread))
            words.append(
                [b"XGROUP", b"SETID", options.key, options.group_key, ids.text(last)]
                + [b"ENTRIESREAD", read]
            )
        texts = list(map(ids.text, jobs))
        shared.ended(texts)
        if shared.limited:
            shared.freed(paused)
        if paused:
            words.append([b"XACK", options.key, options.group_key, *texts[: len(paused)]])
            entries = [
                ids.text(hold.entry)
                for job in paused
                if (hold := shared.paused.pop(job, None)) is not None and hold.entry
            ]
            if entries:
                words.append([b"XDEL", options.holds_key, *entries])
        words.append([b"XDELEX", options.key, b"ACKED", b"IDS", b"%d" % len(texts), *texts])
        return words, len(jobs)

    def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except CommandError as error:
            raise from_command(error) from None


def job_number(job_id: Any) -> int:
    """The ID of a job as a number. Raises DataError."""
    number = (
        ids.parse_or_none(job_id.encode()) if isinstance(job_id, str) and job_id.isascii() else None
    )
    if number is None:
        raise DataError(f"the ID of a job looks like 1767225600000-0, not {job_id!r}")
    return number


def _length(state: State, db: int, key: bytes) -> int:
    value = state.databases[db].keys.get(key)
    return value.length if isinstance(value, Stream) else 0
