"""Keys: how many jobs of each key are in progress, and which jobs wait for their key. For `concurrency_per_key`.

A job with a key is *in progress* from its delivery until it ends or is released; a pause before a retry is a part of
it. A job whose key has no free place is set aside: the group passes over it, and it is pending without owner and with
the delivery count 0. So all of this is in the log:

    pending entry of a job with a key        the job
    no owner, delivery count 0               is set aside, or was released
    any other                                is in progress

This module caches it, because the keys are in the rows. Each lane has jobs of its own that are set aside, in the order
of their IDs; the jobs in progress of all lanes count together. The cache of a lane is read with that of its `Known`,
and like that it is changed by the decision whose unit changes the state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from itertools import repeat
from typing import Final

from tidelog.engine.api import NOBODY, Group, Stream
from tidelog.jobs.rows import key_of

# One fetch passes over at most this many new jobs whose keys have no free place.
PASS_MAX: Final = 1_000


class Keys:
    """The keys of a queue and group.

    busy       key -> jobs in progress                most     the largest limit of a worker
    look_at    when to look for ends that another client has made, monotonic seconds
    _lanes     priority -> the jobs of that lane
    """

    __slots__ = ("busy", "most", "look_at", "_lanes")

    def __init__(self) -> None:
        self.busy: dict[bytes, int] = {}
        self.most: float = 1
        self.look_at = 0.0
        self._lanes: dict[int, _KeyedLane] = {}

    # --- the cache

    def load(self, priority: int, stream: Stream, group: Group) -> None:
        """[lock] Read the pending jobs of a lane."""
        lane = _KeyedLane()
        for time, job in group.pending.by_age():
            row, pending = stream.get(job), group.pending.get(job)
            key = None if row is None else key_of(row)
            if key is None or pending is None:
                continue
            if time < 0 and pending[1] == NOBODY and pending[2] == 0:
                lane.put_aside(job, key)
            else:
                lane.running[job] = key
        self._lanes[priority] = lane
        # An interrupt may have struck amid a change, so derive all that depends on more than one lane.
        lanes = list(self._lanes.values())
        self.busy = dict(Counter(key for each in lanes for key in each.running.values()))
        for each in lanes:
            each.ready = []
            each.offer_all()

    def _lane(self, priority: int) -> _KeyedLane:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = _KeyedLane()
        return lane

    # --- what is set aside

    def aside(self, priority: int) -> dict[int, bytes]:
        """The jobs of a lane that are set aside, with their keys."""
        return self._lane(priority).aside

    def is_waiting(self) -> bool:
        """Whether any job is set aside."""
        return any(lane.aside for lane in self._lanes.values())

    def first(self, priority: int) -> int | None:
        """The first job of a lane that is set aside and may have a place now."""
        ready = self._lane(priority).ready
        return ready[0][0] if ready else None

    def has_place(self, priority: int, key: bytes, most: float) -> bool:
        """Whether a new job of a lane may be delivered. Jobs of its key that are set aside come before it."""
        return self.busy.get(key, 0) < most and not self._lane(priority).has(key)

    def put_aside(self, priority: int, job: int, key: bytes) -> None:
        """[lock] A new job is set aside in the unit under way."""
        self._lane(priority).put_aside(job, key)

    def take(self, priority: int, most: float, count: int, refused: Collection[int]) -> list[int]:
        """[lock] At most `count` jobs of a lane that are set aside and have a place now, in the order of their IDs.
        They are in progress from now on.
        """
        lane, kept = self._lane(priority), list[tuple[int, bytes]]()
        taken: list[int] = []
        while lane.ready and len(taken) < count:
            job, key = heappop(lane.ready)
            if lane.aside.get(job) != key or lane.first(key) != job:
                continue  # it has ended, and the first one of its key is offered too
            if job in refused:
                kept.append((job, key))
            elif self.busy.get(key, 0) >= most:
                if self.busy[key] < self.most:
                    kept.append((job, key))  # a worker with a larger limit may take it
            else:
                self.begin(priority, job, key)
                taken.append(job)
                lane.offer(key)
        for each in kept:
            heappush(lane.ready, each)
        return taken

    def limit(self, jobs: int | None) -> None:
        """[lock] A worker has this limit; None = it has none."""
        most = math.inf if jobs is None else jobs
        if most > self.most:
            self.most = most
            for lane in self._lanes.values():
                lane.offer_all()

    # --- changes

    def begin(self, priority: int, job: int, key: bytes) -> None:
        """[lock] A job is delivered, for the first time or after it was set aside."""
        lane = self._lane(priority)
        lane.aside.pop(job, None)
        if job not in lane.running:
            lane.running[job] = key
            self.busy[key] = self.busy.get(key, 0) + 1

    def begin_all(self, priority: int, jobs: dict[int, bytes], most: float) -> bool:
        """[lock] `begin` for new jobs, given with their keys, if all of them have a place. Otherwise return False, and
        change nothing.
        """
        busy, queues = self.busy, self._lane(priority).queues
        counts = Counter(jobs.values())
        for key, count in counts.items():
            if busy.get(key, 0) + count > most or key in queues:
                return False
        for key, count in counts.items():
            busy[key] = busy.get(key, 0) + count
        self._lane(priority).running.update(jobs)
        return True

    def released(self, priority: int, job: int) -> bool:
        """[lock] A job goes back as if it had not been delivered. False if it has no key."""
        lane = self._lane(priority)
        key = lane.running.pop(job, None)
        if key is None:
            return False
        self._free(key)
        lane.put_aside(job, key)
        self._offer(key)
        return True

    def ended(self, priority: int, jobs: Iterable[int]) -> None:
        """[lock] These jobs leave the group."""
        lane = self._lane(priority)
        left = list(jobs)
        freed = list(filter(None, map(lane.running.pop, left, repeat(None))))
        if len(freed) < len(left) and lane.aside:
            for job in left:
                key = lane.aside.pop(job, None)
                if key is not None:
                    lane.offer(key)
        if freed:
            busy = self.busy
            for key, count in Counter(freed).items():
                busy[key] -= count
                if not busy[key]:
                    del busy[key]
            for other in self._lanes.values():
                if other.queues:
                    for key in freed:
                        other.offer(key)

    def look(self, priority: int, group: Group) -> None:
        """[lock] Find the jobs of a lane that another client has ended."""
        pending, lane = group.pending, self._lane(priority)
        self.ended(priority, [job for job in lane.running if not pending.contains(job)])
        if len(lane.aside) > pending.nacked():
            self.ended(priority, [job for job in lane.aside if not pending.contains(job)])

    def _free(self, key: bytes) -> None:
        left = self.busy.get(key, 0) - 1
        if left > 0:
            self.busy[key] = left
        else:
            self.busy.pop(key, None)

    def _offer(self, key: bytes) -> None:
        """A place of the key is free, for a job of any lane."""
        for lane in self._lanes.values():
            lane.offer(key)


class _KeyedLane:
    """The jobs of one lane that have a key.

    running   jobs in progress -> key            aside   jobs that are set aside -> key
    queues    key -> its jobs that are set aside, as a heap; some have ended
    ready     a heap of (job, key): the first job of each key that may have a free place; some have ended
    """

    __slots__ = ("running", "aside", "queues", "ready")

    def __init__(self) -> None:
        self.running: dict[int, bytes] = {}
        self.aside: dict[int, bytes] = {}
        self.queues: dict[bytes, list[int]] = {}
        self.ready: list[tuple[int, bytes]] = []

    def put_aside(self, job: int, key: bytes) -> None:
        self.aside[job] = key
        heappush(self.queues.setdefault(key, []), job)

    def first(self, key: bytes) -> int | None:
        """The first job of a key that is set aside."""
        queue = self.queues.get(key)
        while queue:
            if queue[0] in self.aside:
                return queue[0]
            heappop(queue)
        self.queues.pop(key, None)
        return None

    def has(self, key: bytes) -> bool:
        return key in self.queues and self.first(key) is not None

    def offer(self, key: bytes) -> None:
        job = self.first(key)
        if job is not None:
            heappush(self.ready, (job, key))

    def offer_all(self) -> None:
        for key in list(self.queues):
            self.offer(key)
