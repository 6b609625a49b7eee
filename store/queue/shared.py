"""Shared: what the workers of one queue and group in this process know together.

An embedded store has one writer, so all its workers live here, and who lives need not be guessed from clocks: a
delivery is living while its object is, for as long as its time limit allows. All waiting is on the monotonic clock; the
wall clock only tells how old something is that an earlier process left behind. So a clock that jumps takes no job from
a living worker, and makes no pause shorter.

What is paused, or lent beyond its lease, is a record in `<name>:holds` and here a cache of those records, read again
when the store's memory was rebuilt, when the stream is another one, or after a unit that failed.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappush
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from tidelog.engine import ids
from tidelog.engine.block import Row
from tidelog.engine.commands.delete import log_delete
from tidelog.engine.context import Context
from tidelog.engine.group import Group
from tidelog.engine.idlist import pack
from tidelog.engine.ids import MAX
from tidelog.engine.pending import NOBODY
from tidelog.engine.stream import Stream
from tidelog.store.core import Core
from tidelog.store.queue.options import Options
from tidelog.store.queue.rows import fields_of, hold_of, shown, text
from tidelog.store.queue.streams import among_held, stream_at
from tidelog.store.waiters import Caller

if TYPE_CHECKING:
    from tidelog.store.queue.base import QueueBase

RATE_SECONDS: Final = 60.0  # what `put_per_second` and `done_per_second` look back on, at most
FEW: Final = 8  # jobs that are looked up one by one
FAILED_JOBS_MAX: Final = 100_000  # whose failures are remembered by job
Job = tuple[int, Row, int]  # ID, row, deliveries
# The thread that has a job, by its ident, or the task, with the thread of its loop.
Holder = int | tuple[int, Callable[[], Any]]

log = logging.getLogger("tidelog.queue")


class Delivery:
    """Jobs that one worker was given together. While it lives, until `until` at most, their leases are renewed.

    One of a single job serves again when that is done (`Place.spare`): it stays listed in `Shared.living`, and has
    nothing open meanwhile.

    open        the jobs not yet settled: ID -> deliveries, by which (and the worker) they are fenced
    jobs        those not yet handed to the worker, the first one last
    finished    those done whose acknowledgement is still to be written, with those done after them
    gathers     whether acknowledgements are gathered so
    until       end of the time limit, monotonic seconds; None = no limit
    renewed     when the leases were renewed last
    holder      who has its jobs in hand, 0 = nobody yet
    hands       of a batch: job -> who has it in hand, where that is or was somebody else
    """

    __slots__ = (
        *("shared", "options", "worker", "open", "jobs", "finished", "gathers", "until", "renewed"),
        *("holder", "hands", "__weakref__"),
    )

    def __init__(self, shared: Shared, options: Options, worker: bytes, gathers: bool) -> None:
        self.jobs: list[Job] = []
        self.finished: deque[int] = deque()
        self.open: dict[int, int] = {}
        self.options = options
        self.worker = worker
        self.gathers = gathers
        self.until: float | None = None
        self.renewed = 0.0
        self.holder: Holder = 0
        self.hands: dict[int, Holder] = {}
        self.shared = shared  # from here on there is something to clear up
        shared.living[id(self)] = weakref.ref(self)

    def lives(self, mono: float) -> bool:
        """Whether its leases are renewed: the time limit is not over."""
        return self.until is None or mono < self.until

    def taken(self, job: int, holder: Holder) -> None:
        """A job of it is in somebody's hands, who is not `self.holder`."""
        if self.gathers and self.holder:
            self.hands[job] = holder
        else:
            self.holder = holder

    def take_unseen(self) -> list[Job]:
        """Take the jobs that were not handed to the worker. Its thread may be taking one meanwhile: each goes to one of
        the two.
        """
        taken: list[Job] = []
        try:
            taken.extend(map(list.pop, repeat(self.jobs, len(self.jobs))))
        except IndexError:
            pass  # what was taken before stays taken
        return taken

    def take_finished(self) -> list[int]:
        """Take the finished jobs, to be written. The worker may be adding to them meanwhile, and another thread take
        some: the beat does, while a consumer is closed.
        """
        taken: list[int] = []
        try:
            taken.extend(map(deque.popleft, repeat(self.finished, len(self.finished))))
        except IndexError:
            pass  # what was taken before stays taken
        return taken

    def still_held(self, group: Group, jobs: Sequence[int]) -> list[int]:
        """[lock] Those of its open jobs that nobody else was given."""
        counts = self.open
        if len(jobs) > FEW and set(map(counts.get, jobs)) == {1}:
            # A whole batch that was delivered once: nearly always it lies as one stretch.
            consumer = group.consumers.get(self.worker)
            found = sorted(jobs)
            if consumer and group.pending.are_held(pack(found), consumer.index, 1):
                return found
        return among_held(group, self.worker, [(job, counts.get(job, 0)) for job in jobs])

    def written(self, jobs: Collection[int], held: Collection[int]) -> None:
        """These finished jobs are acknowledged in the log, as far as they were still held."""
        if self.open.keys() <= set(jobs):
            self.open.clear()
        else:
            for job in jobs:
                self.settled(job)
        if len(held) < len(jobs):
            name = shown(self.shared.key)
            lost = ", ".join(map(text, sorted({*jobs} - {*held})))
            log.warning(
                "queue %s: done, but given to another worker meanwhile, or settled: jobs %s",
                name,
                lost,
            )

    def settled(self, job: int) -> None:
        """A job is no longer this worker's business."""
        self.open.pop(job, None)

    def __del__(self) -> None:
        # Anywhere, also while a lock is held: nothing here may wait. The next fetch or beat does the rest.
        try:
            shared = self.shared
        except AttributeError:  # an interrupt in the middle of its making
            return
        if self.open:
            shared.leftovers.append(Leftover(self, self.open, list(self.finished), self.jobs))
        shared.living.pop(id(self), None)


class Place:
    """A worker's place in a queue: what its consumer and the jobs that this gets have in common.

    worker     its name
    reraise    whether what a job's block raises goes on its way
    spare      a delivery whose only job is done, or None. Deliveries do not know their place: nothing goes round
    past       an empty delivery, which jobs are left with that gave theirs away
    """

    __slots__ = ("queue", "worker", "reraise", "spare", "past")

    def __init__(self, queue: QueueBase, worker: str, reraise: bool) -> None:
        self.queue, self.worker, self.reraise = queue, worker, reraise
        self.spare: Delivery | None = None
        self.past = Delivery(queue._shared, queue._options, worker.encode(), False)


class Leftover:
    """What is to be written of a delivery that went away, or was closed: see `Delivery`.

    finished    jobs that were done       unseen    jobs that were never handed to the worker
    open        these, and those that the worker let go of
    """

    __slots__ = ("options", "worker", "open", "finished", "unseen", "_late_at")

    def __init__(
        self, delivery: Delivery, open: dict[int, int], finished: list[int], unseen: list[Job]
    ) -> None:
        self.options, self.worker, self.open = delivery.options, delivery.worker, open
        self.finished, self.unseen = finished, unseen
        self._late_at = delivery.renewed + delivery.options.retry_after

    def let_go(self) -> dict[int, float]:
        """The jobs that the worker let go of, and when they are late, monotonic seconds."""
        told = {*self.finished, *(job for job, _, _ in self.unseen)}
        return {job: self._late_at for job in self.open if job not in told}


class Hold:
    """Until when a job is held back: monotonic seconds, and the record's ID in `<name>:holds` (0: it has none)."""

    __slots__ = ("due", "entry")

    def __init__(self, due: float, entry: int) -> None:
        self.due, self.entry = due, entry


class Shared:
    """One queue and group of one open store.

    living      deliveries that live, by their id(); some have nothing open
    leftovers   what deliveries that went away left to be written; see `Delivery`
    paused      jobs without owner, waiting for their retry      heap    of (due, job) for them; stale ones are skipped
    extended    jobs lent beyond their lease                     failed  job -> its entries in `<name>:failures`
    returned    workers that have got their history, or had none
    dropped     jobs that workers of this process let go of, and when they are late; nobody gets them before
    looks       when paused and abandoned jobs are to be looked for, monotonic seconds, by `retry_after`: several
                queue objects may differ in it
    room        callers that wait for a bounded queue to have room, or for jobs to be settled
    closing     the store is being closed: no job is handed out any more
    """

    def __init__(self, core: Core, db: int, options: Options) -> None:
        # Not the core itself: the store must go with its last user, and its core knows this.
        self._core = weakref.ref(core)
        self.monotonic = core.monotonic
        self.db, self.key, self.group_key = db, options.key, options.group_key
        self.living: dict[int, weakref.ref[Delivery]] = {}
        self.leftovers: deque[Leftover] = deque()
        self.dropped: dict[int, float] = {}
        self.returned: set[bytes] = set()
        self.workers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.room: dict[Caller, None] = {}
        self.samples: deque[tuple[float, int, int]] = deque()
        self.next_tidy = 0.0  # when stale consumers are looked for, monotonic seconds
        self.unswept = 0  # acknowledged since retention last looked
        self.closing = False
        self.number = -1  # of the stream that the cache was read from, -1: it is to be read
        self._forget()

    def _forget(self) -> None:
        self.paused: dict[int, Hold] = {}
        self.extended: dict[int, Hold] = {}
        self.heap: list[tuple[float, int]] = []
        self.failed: dict[int, list[int]] = {}
        self.looks: dict[float, float] = {}

    @property
    def core(self) -> Core:
        core = self._core()
        assert core is not None  # whoever asks holds a face of it
        return core

    # --- the cache

    def fresh(self, ctx: Context, options: Options, stream: Stream, group: Group) -> None:
        """[lock] See that the cache is of this stream as it is in memory now."""
        if self.number != stream.number:
            self._forget()
            self._load(ctx, options, group)
            self.number = stream.number

    def stale(self) -> None:
        """A unit failed after the cache was changed for it, or memory was rebuilt: read the records again before the
        next one.
        """
        self.number = -1

    def _load(self, ctx: Context, options: Options, group: Group) -> None:
        mono = self.monotonic()
        ms, at = self.core.opened_at
        elapsed = ms + int((mono - at) * 1000)
        self.find_paused(group, mono)
        holds = stream_at(ctx, options.holds_key)
        for entry_id, row in holds.range(0, MAX) if holds is not None else ():
            found = None if row is None else hold_of(self.group_key, row)
            if found is None:
                continue
            job, until = found
            # Since the store was opened the wall clock may have jumped; what a hold was made for is the most.
            left = min(until - elapsed, until - (entry_id >> 64))
            hold = Hold(mono + max(0, left) / 1000, entry_id)
            pending = group.pending.get(job)
            if pending is None or pending[1] == NOBODY:
                self.pause(job, hold)  # also what was done by somebody else: dropped when it is due
            else:
                self.extended[job] = hold
        failures = stream_at(ctx, options.failures_key)
        for entry_id, row in failures.range(0, MAX) if failures is not None else ():
            if row is not None:
                fields = fields_of(row)
                number = ids.parse_or_none(fields.get(b"job", b""))
                if number is not None and fields.get(b"group") == self.group_key:
                    self.remember_failure(number, entry_id)

    def find_paused(self, group: Group, mono: float) -> None:
        """Jobs that someone gave back without a pause are due at once."""
        for time, job in group.pending.by_age():
            if time >= 0:
                break
            if job not in self.paused:
                self.pause(job, Hold(mono, 0))

    def pause(self, job: int, hold: Hold) -> None:
        """A job is paused."""
        self.paused[job] = hold
        heappush(self.heap, (hold.due, job))
        for period, at in self.looks.items():
            self.looks[period] = min(at, hold.due)

    def due(self, group: Group, mono: float) -> list[int]:
        """[lock] The paused jobs whose pause is over, as the next fetches would take them. Others are not looked at."""
        if group.pending.nacked() > len(self.paused):
            self.find_paused(group, mono)
        heap, found, places = self.heap, set[tuple[float, int]](), [0]
        for place in places:  # a heap: behind one that is not due, none is
            if place < len(heap) and heap[place][0] <= mono:
                found.add(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        jobs: list[int] = []
        for due, job in sorted(found):
            hold, pending = self.paused.get(job), group.pending.get(job)
            if hold and hold.due == due and pending and pending[1] == NOBODY:
                jobs.append(job)
        return jobs

    def remember_failure(self, job: int, entry_id: int) -> None:
        """Where a failure of a job is told."""
        self.failed.setdefault(job, []).append(entry_id)
        if len(self.failed) > FAILED_JOBS_MAX:
            del self.failed[next(iter(self.failed))]

    def drop_notes(self, ctx: Context, options: Options, jobs: Iterable[int]) -> None:
        """[lock] These jobs are done, or delivered again: their holds go, in the unit under way."""
        entries = []
        for job in jobs:
            hold = self.paused.pop(job, None) or self.extended.pop(job, None)
            if hold is not None and hold.entry:
                entries.append(hold.entry)
        if entries:
            holds = stream_at(ctx, options.holds_key)
            if holds is not None:
                log_delete(ctx, options.holds_key, holds, entries)

    # --- who lives

    def held_jobs(self, mono: float) -> tuple[set[int], set[int]]:
        """Jobs in somebody's hands: those whose leases are renewed, and those beyond their time limit."""
        living: set[int] = set()
        lapsed: set[int] = set()
        for delivery in self.deliveries():
            (living if delivery.lives(mono) else lapsed).update(list(delivery.open))
        return living, lapsed

    def leave(self, delivery: Delivery) -> Leftover | None:
        """Its worker takes no more jobs of it. List those that were never handed out, to go back, and the finished
        ones, to be written; None if there are none of either.
        """
        if not (delivery.jobs or delivery.finished):
            return None
        finished, unseen = delivery.take_finished(), delivery.take_unseen()
        told = (*finished, *(job for job, _, _ in unseen))
        counts = {job: delivery.open.get(job, 0) for job in told}
        left = Leftover(delivery, counts, finished, unseen)
        self.leftovers.append(left)
        for job in told:  # from here on the worker holds them no more, whenever that is written
            delivery.settled(job)
        return left

    def dealt_with(self, left: Iterable[Leftover]) -> None:
        """What these were about is in the log."""
        for leftover in left:
            try:
                self.leftovers.remove(leftover)
            except ValueError:
                pass  # by somebody else as well, who found nothing left to do

    def deliveries(self) -> list[Delivery]:
        """Deliveries whose jobs somebody still holds."""
        found: list[Delivery] = []
        # Not items(): while that makes tuples, the collector may run, and drop some.
        for key in list(self.living):
            reference = self.living.get(key)
            delivery = None if reference is None else reference()
            if delivery is not None:
                if delivery.open:
                    found.append(delivery)
            elif self.living.get(key) is reference:
                self.living.pop(key, None)  # an interrupt kept it from doing that itself
        return found

    # --- units

    def unit(self, work: Callable[[], Any]) -> Any:
        """Run what decides and commits a unit; if that fails, the cache is doubtful."""
        try:
            return work()
        except BaseException:
            self.stale()
            raise

    def made_room(self) -> None:
        """Jobs went: putters that wait may look again."""
        if self.room:
            with self.core.lock:
                for caller in list(self.room):
                    caller.nudge()

    # --- figures

    def sample(self, mono: float, added: int, depth: int) -> tuple[float | None, float | None]:
        """Jobs put and jobs gone per second since up to a minute ago; None without anything to compare with."""
        samples = self.samples
        while len(samples) > 1 and samples[1][0] <= mono - RATE_SECONDS:
            samples.popleft()
        put = gone = None
        if samples and mono > samples[0][0]:
            at, added_then, gone_then = samples[0]
            put = max(0, added - added_then) / (mono - at)
            gone = max(0, added - depth - gone_then) / (mono - at)
        if not samples or mono - samples[-1][0] >= RATE_SECONDS / 120:
            samples.append((mono, added, added - depth))
        return put, gone
