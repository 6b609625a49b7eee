"""Pauses: which jobs of one lane and group nobody gets yet, as this process knows it.

A paused job, or one with an extended lease, has a record in `<name>:holds`. This module caches those records, and which
entry of `<name>:failures` is about which job. Known (known.py) says when they are read again.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from heapq import heappush
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import NOBODY, Context, Group, log_delete, reading
from tidelog.engine.ids import MAX
from tidelog.jobs.lanes import lane_of
from tidelog.jobs.options import Options
from tidelog.jobs.rows import deferral_of, fields_of
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.keys import Keys
from tidelog.store.commit.core import Core

FAILED_JOBS_MAX: Final = 100_000  # jobs whose failures are cached


class Deferral:
    """How long a job is deferred: until `due`, monotonic seconds. `entry`: its record in `<name>:holds`, 0 = none."""

    __slots__ = ("due", "entry")

    def __init__(self, due: float, entry: int) -> None:
        self.due, self.entry = due, entry


class Pauses:
    """The paused jobs of one lane and group, and what else its records say of single jobs.

    paused      jobs without owner that wait for their retry     heap    (due, job) for them; stale pairs are skipped
    extended    jobs with an extended lease                      failed  job -> its entries in `<name>:failures`
    looks       when to look for paused and abandoned jobs, monotonic seconds, by `lease`: several queue objects
                may differ in it
    chores_at   in lane 0 of a queue with lanes: when to put the jobs that are due, and to look for lanes
    keys        the jobs with keys, of all lanes; None unless a worker of this process limits them
    """

    lane_0: Any
    lanes: dict[int, Any]

    def __init__(self, core: Core, db: int, options: Options) -> None:
        # A weak reference, because the core refers to this object, and the core must be freed with its last user.
        self._core = weakref.ref(core)
        self.monotonic = core.monotonic
        self.db, self.group_key, self.priority = db, options.group_key, options.priority
        self.place = db, options.root
        self.keys: Keys | None = None
        self._forget()

    @property
    def core(self) -> Core:
        core = self._core()
        assert core is not None  # the caller holds a face of it
        return core

    def _forget(self) -> None:
        self.paused: dict[int, Deferral] = {}
        self.extended: dict[int, Deferral] = {}
        self.heap: list[tuple[float, int]] = []
        self.failed: dict[int, list[int]] = {}
        self.looks: dict[float, float] = {}
        self.chores_at = 0.0

    def _load(self, ctx: Context, options: Options, group: Group) -> None:
        mono = self.monotonic()
        ms, at = self.core.opened_at
        elapsed = ms + int((mono - at) * 1000)
        self.find_paused(group, mono)
        holds = stream_at(ctx, options.holds_key)
        for entry_id, row in reading.between(holds, 0, MAX) if holds is not None else ():
            found = None if row is None else deferral_of(self.group_key, row)
            if found is None:
                continue
            job, until = found
            # The wall clock may have jumped since the store was opened. So never wait longer than the hold was made
            # for.
            left = min(until - elapsed, until - (entry_id >> 64))
            deferral = Deferral(mono + max(0, left) / 1000, entry_id)
            pending = group.pending.get(job)
            if job in self.aside():
                continue
            if pending is None or pending[1] == NOBODY:
                # Pause the job even if another client has acknowledged it. When the pause is over, the deferral is
                # dropped.
                self._pause(job, deferral)
            else:
                self.extended[job] = deferral
        failures = stream_at(ctx, options.failures_key)
        for entry_id, row in reading.between(failures, 0, MAX) if failures is not None else ():
            if row is not None:
                fields = fields_of(row)
                number = ids.parse_or_none(fields.get(b"job", b""))
                if number is not None and fields.get(b"group") == self.group_key:
                    priority = lane_of(number)
                    if (
                        priority == self.priority
                        or not self.priority
                        and priority not in self.lanes
                    ):
                        self.remember_failure(number, entry_id)

    def find_paused(self, group: Group, mono: float) -> None:
        """Make the jobs due at once that were given back without a pause."""
        aside = self.aside()
        for time, job in group.pending.by_age():
            if time >= 0:
                break
            if job not in self.paused and job not in aside:
                self._pause(job, Deferral(mono, 0))

    def pause(self, job: int, deferral: Deferral) -> None:
        """[lock] A job is paused in the unit under way."""
        self._pause(job, deferral)
        if self.lane_0 is not None:  # nobody waits on the key that the unit changes
            self.core.waiting.signal([self.place])

    def give_back(self, job: int, count: int) -> None:
        """[lock] A job goes back at once in the unit under way, with this number of deliveries."""
        if count or self.keys is None or not self.keys.released(self.priority, job):
            self.pause(job, Deferral(self.monotonic(), 0))
        elif self.lane_0 is not None:
            self.core.waiting.signal([self.place])

    def aside(self) -> Collection[int]:
        """[lock] The jobs of this lane that wait for their keys."""
        return () if self.keys is None else self.keys.aside(self.priority)

    def all_returned_known(self, group: Group) -> bool:
        """[lock] Whether the cache has all jobs that are pending without owner."""
        return group.pending.nacked() <= len(self.paused) + len(self.aside())

    def _pause(self, job: int, deferral: Deferral) -> None:
        self.paused[job] = deferral
        heappush(self.heap, (deferral.due, job))
        for period, at in self.looks.items():
            self.looks[period] = min(at, deferral.due)

    def hasten(self, at: float) -> None:
        """[lock] Look for jobs at `at`, monotonic seconds, or earlier."""
        self.chores_at = min(self.chores_at, at)
        for period, before in self.looks.items():
            self.looks[period] = min(before, at)

    def due(self, group: Group, mono: float) -> list[int]:
        """[lock] The paused jobs that are due, in the order of the next fetches, and those that wait for their keys.
        Costs nothing for jobs not due.
        """
        if not self.all_returned_known(group):
            self.find_paused(group, mono)
        heap, found, places = self.heap, set[tuple[float, int]](), [0]
        for place in places:  # a heap: if an item is not due, no child of it is due
            if place < len(heap) and heap[place][0] <= mono:
                found.add(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        jobs: list[int] = []
        for due, job in sorted(found):
            deferral, pending = self.paused.get(job), group.pending.get(job)
            if deferral and deferral.due == due and pending and pending[1] == NOBODY:
                jobs.append(job)
        return jobs + [job for job in sorted(self.aside()) if group.pending.contains(job)]

    def remember_failure(self, job: int, entry_id: int) -> None:
        """Note which entry of `<name>:failures` is about this job."""
        self.failed.setdefault(job, []).append(entry_id)
        if len(self.failed) > FAILED_JOBS_MAX:
            del self.failed[next(iter(self.failed))]

    def drop_notes(self, ctx: Context, options: Options, jobs: Iterable[int]) -> None:
        """[lock] Delete the deferrals of jobs that are done or delivered again, in the unit under way."""
        entries = []
        for job in jobs:
            deferral = self.paused.pop(job, None) or self.extended.pop(job, None)
            if deferral is not None and deferral.entry:
                entries.append(deferral.entry)
        if entries:
            holds = stream_at(ctx, options.holds_key)
            if holds is not None:
                log_delete(ctx, options.holds_key, holds, entries)
