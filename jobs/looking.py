"""Look at a queue: figures, the next jobs, recorded failures, the result of a job."""

from __future__ import annotations

from typing import Any

from tidelog.engine.api import Context, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import HIGHEST_FIRST, Lane, lanes_in, totals
from tidelog.jobs.options import job_number, positive
from tidelog.jobs.rows import Failure
from tidelog.jobs.stats import Stats
from tidelog.jobs.streams import waiting
from tidelog.jobs.work.later import later_of
from tidelog.jobs.work.results import Outcome
from tidelog.store.commit.core import Answer


def stats(engine: QueueEngine) -> Answer:
    """Figures: (Stats, promise)."""
    options, db = engine.options, engine.db
    core, shared = engine.core, engine.shared
    mono, now = core.monotonic(), engine.store_ms()

    def at(state: State) -> Stats:
        pending = unread = paused = due = length = 0
        in_flight: dict[str, int] = {}
        by_priority: dict[int, int] = {}
        oldest: list[int] = []
        for lane in lanes_in(state, db, options):
            stream, group, new = lane.stream, lane.group, waiting(lane.stream, lane.group)
            back = 0
            if group is not None:
                back = len(due_in(engine, state, lane))
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


def due_in(engine: QueueEngine, state: State, lane: Lane) -> list[int]:
    """[lock] Jobs of a lane that were delivered before and are due, in delivery order."""
    stream, group, options = lane.stream, lane.group, lane.options
    if group is None or not group.pending.nacked():
        return []
    core, lane_0 = engine.core, engine.shared
    ctx = Context(state, core.settings)
    ctx.db, ctx.now = engine.db, core.now
    # the store is read-only, and the writer cannot invalidate this process's cache
    if core.checkpoints is None:
        lane_0.stale()
    shared = lane_0.lane(options.priority)
    shared.fresh(ctx, options, stream, group)
    # Read the clock now: the times in a cache that was just read are not later.
    return shared.due(group, shared.monotonic())


def depth(engine: QueueEngine) -> Answer:
    """How many jobs are not done, the delayed ones that are not due left out: (number, promise)."""
    core, options, now = engine.core, engine.options, engine.store_ms()

    def at(state: State) -> int:
        later = later_of(state, engine.db, options)
        arrived = engine.shared.later.count_due(core, later, now)
        return totals(state, engine.db, options)[1] + arrived

    answer: Answer = core.look(at)
    return answer


def peek(engine: QueueEngine, number: int, scheduled: bool) -> Answer:
    """The next jobs that are due, or the delayed ones: ([(number, row, due ms or None), ...], promise).

    Raises DataError.
    """
    positive("count", number)
    options, shared, now = engine.options, engine.shared, engine.store_ms()

    def at(state: State) -> list[Any]:
        later = later_of(state, engine.db, options)
        arrived: list[Any] = []
        if later is not None:
            shared.later.watch_clock(engine.core, now)
            lead = shared.later.lead
            for due_ms, job in shared.later.listed(later[1]):
                if (due_ms > now) is scheduled and (row := later[0].get(job)) is not None:
                    # shown by the wall clock
                    arrived.append((job, row, due_ms - lead if scheduled else None))
                    if len(arrived) == number:
                        break
                elif due_ms > now and not scheduled and not shared.later.disordered:
                    break
        if scheduled:
            return arrived
        found: list[Any] = []
        lanes = {lane.options.priority: lane for lane in lanes_in(state, engine.db, options)}
        for priority in (*HIGHEST_FIRST, 0):
            if priority in lanes:
                found += _next_in(engine, state, lanes[priority], number - len(found))
            found += [each for each in arrived if rows.priority_of(each[1]) == priority]
            if len(found) >= number:
                break
        return found[:number]

    answer: Answer = engine.core.look(at)
    return answer


def _next_in(engine: QueueEngine, state: State, lane: Lane, number: int) -> list[Any]:
    """[lock] The next jobs of a lane, as `peek` gives them."""
    stream, group = lane.stream, lane.group
    due = due_in(engine, state, lane)[:number]
    found: list[Any] = [(job, row, None) for job in due if (row := stream.get(job)) is not None]
    if len(found) < number:
        after = 0 if group is None else group.last_id
        fresh = reading.between(stream, after + 1, MAX, number - len(found))
        found += [(job, row, None) for job, row in fresh]
    return found


def failures(engine: QueueEngine, job_id: str | None, number: int) -> Answer:
    """Recorded failures, newest first, of one job or of all: ([Failure], promise). Raises DataError."""
    positive("count", number)
    options = engine.options

    def at(state: State) -> list[Failure]:
        value = state.databases[engine.db].keys.get(options.failures_key)
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

    answer: Answer = engine.core.look(at)
    return answer


def outcome(engine: QueueEngine, job_id: str, wait: float | None) -> Outcome:
    """The question for the result of a job. Raises DataError."""
    timeout_ms = 0 if wait is None else max(1, round(wait * 1000)) if wait else None
    number = job_number(job_id)
    return Outcome(engine.core, engine.shared.results, engine.options, number, timeout_ms)


def _length(state: State, db: int, key: bytes) -> int:
    value = state.databases[db].keys.get(key)
    return value.length if isinstance(value, Stream) else 0
