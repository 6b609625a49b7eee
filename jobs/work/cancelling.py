"""Cancelling: a job is no longer to be done, whether it is delayed, waits, is paused or runs. Under the store's lock.

One unit ends the job in the groups that have not done it, and adds an entry for each of them to `NAME:cancels`. So
whatever a worker says of the job comes either before, and then there is nothing to cancel, or after, and then the
worker does not hold the job any more. `cancelled_among` tells such a worker from one that lost its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from tidelog.engine import ids
from tidelog.engine.api import (
    NOBODY,
    XACK,
    Context,
    EntryRow,
    Group,
    State,
    Stream,
    decide_xadd_many,
    log_acked,
    log_delete,
    reading,
    still_referenced,
    xtrim,
)
from tidelog.engine.errors import CommandError
from tidelog.engine.idlist import pack, pack_one
from tidelog.engine.ids import MAX
from tidelog.jobs import rows
from tidelog.jobs.cancels import delivery_key
from tidelog.jobs.dedup import TAKER, freed, table_at
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lane_of
from tidelog.jobs.options import Options
from tidelog.jobs.streams import is_needed, stream_at
from tidelog.jobs.work.freeing import free_window, has_begun
from tidelog.jobs.work.known import Delivery, Known
from tidelog.jobs.work.later import GROUP, find_later, is_delayed
from tidelog.jobs.work.progressing import ended
from tidelog.jobs.work.results import first_id, first_id_of_dead
from tidelog.jobs.work.settle import failures

T = TypeVar("T")
KEPT_JOBS: Final = 1_000  # the newest cancelled jobs of a queue are kept, and up to a node more
_FOR_ALL: Final = (
    b"ERR the group was not given the job yet, and others need it: cancel it for all groups"
)
# priority of the lane, its stream, present ID. A delayed job is in the stream of the delayed ones
Whereabouts = tuple[int, Stream, int]


class Cancelling:
    """The decision to cancel a job. Its result is 1, or 0 if there was nothing to cancel.

    only    the one group for which the job is cancelled; None = all
    """

    def __init__(self, engine: QueueEngine, job: int, only: bytes | None) -> None:
        self._engine, self._job, self._only = engine, job, only
        self._ended: list[tuple[Known, int, int]] = []  # lane, job, deliveries: what runs
        self._touched: list[Known] = []

    def find(self) -> None:
        """Before the decision: find out which ID the job has now, if that is another one. Others get the lock
        between two pages.
        """
        engine, results = self._engine, self._engine.known.results

        def is_known(ctx: Context) -> bool:
            if self._place(ctx) is not None:
                return True
            results.asked = results.moving = True
            return results.origins.read_on(engine.core, ctx)

        while not engine.decided(is_known)[0]:
            pass

    def __call__(self, ctx: Context) -> int:
        self._ended.clear()
        place = self._place(ctx)
        if place is None:  # it became due since, perhaps
            self._engine.known.results.origins.read_on(self._engine.core, ctx)
            place = self._place(ctx)
        if place is None:
            return 0
        return self._delayed(ctx, place[1]) if is_delayed(place[2]) else self._due(ctx, *place)

    def _place(self, ctx: Context) -> Whereabouts | None:
        """Where the job is, if some group still needs it; None if that is not known."""
        options, job = self._engine.options, self._job
        if is_delayed(job):
            later = find_later(ctx, options)
            if later is not None and later[1].pending.contains(job):
                return 0, later[0], job
        moved = self._engine.known.results.origins.find(ctx.state, job)
        present = job if moved is None else moved[1]
        for priority in {lane_of(present), 0}:
            stream = stream_at(ctx, options.lane(priority).key)
            if stream is not None and _needs(stream, present):
                return priority, stream, present
        return None

    def _check(self, stream: Stream | None) -> None:
        """Raise CommandError if the job is to be cancelled for one group, and others need it as well."""
        if self._only is not None and stream is not None and stream.groups.keys() - {self._only}:
            raise CommandError(_FOR_ALL)

    def _delayed(self, ctx: Context, stream: Stream) -> int:
        engine, job = self._engine, self._job
        options, row = engine.options, stream.get(job)
        queue = stream_at(ctx, options.key)
        self._check(queue)
        if row is not None:
            names = [] if queue is None else list(queue.groups)
            self._record(ctx, [self._unheld(name, 0, job, row) for name in self._or_own(names)])
        engine.known.ended([ids.text(job)])
        self._free(ctx, job)
        ctx.effects += free_window(ctx, options, (job,))
        here = [] if row is None else [job]
        log_acked(ctx, options.later_key, stream, GROUP, pack([job]), here)
        return len(here)

    def _due(self, ctx: Context, priority: int, stream: Stream, job: int) -> int:
        engine, only = self._engine, self._only
        row = stream.get(job)
        pending = [each for each in stream.groups.values() if each.pending.contains(job)]
        unread = [each.name for each in stream.groups.values() if row and each.last_id < job]
        if only is not None:
            if only in unread:
                self._check(stream)
            pending = [each for each in pending if each.name == only]
            unread = [name for name in unread if name == only]
        if row and not stream.groups:
            unread = self._or_own([])
        if not pending and not unread:
            return 0
        options = engine.options.lane(priority)
        begun, done = has_begun(ctx, options, job), len(stream.groups) - len(pending) - len(unread)
        entries = [self._held(ctx, priority, stream, each, job, row or ()) for each in pending]
        entries += [self._unheld(name, priority, job, row or ()) for name in unread]
        self._record(ctx, entries)
        needed = only is not None and still_referenced(stream, only, job)
        if not needed:
            self._free(ctx, job)
            if row and not begun:
                ctx.effects += free_window(ctx, options, [ids.parse(first_id(job, row))])
        goes = [job] if row and not needed and not (done > 0 and options.keeps) else []
        for each in pending[1:]:
            ctx.effects.append((XACK, ctx.db, options.key, each.name, pack_one(job)))
        if pending:
            log_acked(ctx, options.key, stream, pending[0].name, pack([job]), goes)
        else:
            log_delete(ctx, options.key, stream, goes)
        engine.known.ended([first_id(job, row or ())])
        for caller in list(engine.known.room):
            caller.nudge()
        return 1

    def _or_own(self, groups: list[bytes]) -> list[bytes]:
        return groups or [self._only or self._engine.options.group_key]

    def _lane(self, group: bytes, priority: int) -> Options:
        """The options of a group's lane."""
        options = self._engine.options
        if group != options.group_key:
            options = replace(options, group=rows.shown(group), group_key=group)
        return options.lane(priority)

    def _unheld(self, group: bytes, priority: int, job: int, row: EntryRow) -> EntryRow:
        """The entry about a job that a group was not given."""
        return rows.dead_row(self._lane(group, priority), job, row, 0, rows.CANCELLED, ())

    def _held(
        self, ctx: Context, priority: int, stream: Stream, group: Group, job: int, row: EntryRow
    ) -> EntryRow:
        """The entry about a job that is pending in a group. Ends the job there, but for its acknowledgement."""
        engine, options = self._engine, self._lane(group.name, priority)
        lane_0 = engine.leases.of(engine.core, engine.db, self._lane(group.name, 0))
        lane = lane_0.lane(priority)
        self._touched.append(lane_0)
        lane.fresh(ctx, options, stream, group)
        known = failures(lane, ctx, options, job)
        held = group.pending.get(job)
        assert held is not None
        _, owner, count = held
        worker = None if owner == NOBODY else group.owners[owner]
        if worker is not None:
            self._ended.append((lane, job, count))
        lane.drop_notes(ctx, options, (job,))
        lane.failed.pop(job, None)
        lane.dropped.pop(job, None)
        ctx.effects += ended(ctx, lane.progress, (job,))
        if lane.limited:
            lane.freed((job,))
        lane.let_others_in()
        name = "" if worker is None else rows.shown(worker.name)
        return rows.dead_row(options, job, row, count, rows.CANCELLED, known, name)

    def _record(self, ctx: Context, entries: list[EntryRow]) -> None:
        """Log the entries of `NAME:cancels`."""
        key = self._engine.options.cancels_key
        stream_at(ctx, key)
        # Whole nodes only; see `Look._log`.
        xtrim(ctx, [b"XTRIM", key, b"MAXLEN", b"~", b"%d" % KEPT_JOBS])
        decide_xadd_many(ctx, key, entries)

    def _free(self, ctx: Context, job: int) -> None:
        """Log that the job holds no dedup ID any more."""
        options = self._engine.options
        table = table_at(ctx, options.root, TAKER)
        iid = None if table is None else table.owned(TAKER, job)
        if iid is not None:
            ctx.effects.append(freed(ctx.db, options.root, TAKER, iid, job))

    # --- afterwards, without the lock

    def asked(self, call: Callable[[], T]) -> T:
        """Make the call that has this decision made, and act on how that ends."""
        try:
            found = call()
        except BaseException:
            self._failed()
            raise
        self._landed()
        return found

    def _landed(self) -> None:
        """It is in the log: tell those who run the job."""
        for lane, job, count in self._ended:
            self._engine.leases.cancels.announce(delivery_key(lane, job, count))
            for delivery in lane.deliveries():
                if delivery.open.get(job) == count:
                    _withdraw(delivery, job)

    def _failed(self) -> None:
        """It is not in the log."""
        for lane_0 in self._touched:
            lane_0.stale()


def _needs(stream: Stream, job: int) -> bool:
    """Whether some group has not finished a job, whose entry may be gone."""
    if stream.contains(job):
        return is_needed(stream, job)
    return any(group.pending.contains(job) for group in stream.groups.values())


def _withdraw(delivery: Delivery, job: int) -> None:
    """The worker of this delivery does not hold the job any more, and does not get it if it has not yet."""
    delivery.settled(job)
    blocks = delivery.blocks
    if blocks is not None and (holder := blocks.get(job)) is not None:
        delivery.end_block(blocks, job, holder)
    for entry in list(delivery.jobs):
        if entry[0] == job:
            try:
                delivery.jobs.remove(entry)
            except ValueError:
                pass  # the worker has just taken it


# --- what was cancelled


def cancelled_among(state: State, db: int, options: Options, jobs: Iterable[int]) -> list[int]:
    """Those of these jobs, by their present IDs, that were cancelled for the group."""
    wanted = {ids.text(job): job for job in jobs}
    found: dict[int, None] = {}
    for _, row in _entries(state, db, options, min(wanted.values(), default=MAX)):
        job = wanted.get(rows.fields_of(row).get(b"id", b""))
        if job is not None:
            found[job] = None
    return list(found)


def find_cancelled(
    state: State, db: int, options: Options, first: int
) -> tuple[int, EntryRow] | None:
    """The entry of `NAME:cancels` about a job of the group, by the ID that `put` returned."""
    wanted = ids.text(first)
    for entry, row in _entries(state, db, options, first):
        if first_id_of_dead(row) == wanted:
            return entry, row
    return None


def _entries(state: State, db: int, options: Options, job: int) -> Iterator[tuple[int, EntryRow]]:
    """The entries of `NAME:cancels` about jobs of the group that were cancelled after this one was put."""
    value = state.databases[db].keys.get(options.cancels_key)
    if isinstance(value, Stream):
        for entry, row in reading.between(value, job >> 64 << 64, MAX):
            if row is not None and rows.fields_of(row).get(b"group") == options.group_key:
                yield entry, row
