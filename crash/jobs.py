"""Jobs: what a queue must contain, by a plain model of its documentation. It imports nothing of the engine.

Operations of queues in a unit (crash/model.py); a job is called by its ID, and IDs are chosen by the store:

    ["put", queue, id, value, dedup ID or b"", key or b""]
    ["aside", queue, id]                          ["release", queue, id]
    ["take", queue, worker, id]                   ["extend", queue, id]
    ["abandon", queue, worker, id]                ["redrive", queue, [id, ...]]
    ["done", queue, id]                           ["bury", queue]
    ["retry", queue, id, error, at once]          ["purge", queue]
    ["fail", queue, id, error]                    ["cancel", queue, id]
    ["arrive", queue, [id, ...]]                  ["hasten", queue, id]
    ["stale", queue, id, value]                   ["expired", queue, id]
    ["answer", queue, id, result]                 ["counted", queue, deliveries]
    ["plan", queue, name, value, next tick]       ["overdue", queue, name, tick]
    ["tick", queue, name, [[dedup ID, id], ...], next tick]
    ["later", queue, id, value, priority, key or b""]

The ID of a job tells its priority, p: its sequence number begins at p << 17. A job with a key waits until no job of its
key is in progress, if the limits of the queue say so; `aside` is what a fetch does to a new one that must wait.
`abandon` is what a fetch does to a job that its worker held when it died, and that was delivered too often already.
`redrive` has the new IDs of the dead jobs, oldest first; `bury` deletes them. `later` puts a delayed job, and `hasten`
makes it due. Before the next fetch the due ones arrive in the queue: `arrive` has their new IDs. `stale` puts a job
that is too old to be delivered, and `expire` is what a fetch does to it. `answer` stores the result of a job, in the
unit of its `done`. `counted` counts deliveries against the rate of the queue. `plan` makes a schedule that puts jobs
into the queue, `overdue` makes it tick, and `tick` puts the jobs, each with a dedup ID, so that none is put twice.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import astuple, dataclass
from typing import Any, Final, NamedTuple

from tidelog.crash.errors import WrongId

# A queue in the form in which the model and the store are compared: jobs as (ID, value, first ID, key, deliveries,
# worker, due, extended), failures as (ID, worker, deliveries, error), oldest first, dead jobs as (ID, value, key,
# deliveries), delayed jobs as (ID, value, due, priority, key), results as (first ID, result), schedules as (name,
# value, next tick, ticks made), the number of deliveries that count against the rate, places as (priority, last ID,
# the ID behind which jobs are new), and cancelled jobs as (ID, value, key, deliveries).
Queued = tuple[Any, ...]
ID = tuple[int, int]

NAMES: Final = (
    "put", "aside", "take", "abandon", "done", "retry", "fail", "release", "extend", "redrive", "bury", "purge",
    "later", "arrive", "cancel", "hasten", "stale", "expired", "answer", "counted", "plan", "overdue", "tick",
)  # fmt: skip
FIRST: Final = (0, 0)  # before all IDs
SEQUENCE_BITS: Final = 17  # of those of one priority
GROWTH: Final = 8  # how many more new jobs a fetch looks at, if all of the last ones must wait
ABANDONED: Final = b"abandoned"
DELIVERIES_MAX: Final = 3


@dataclass
class Job:
    """A job that is not done. `worker` holds it; b"" for none. `paused`: it failed and waits for its retry. `aside`: it
    was passed over, or given back, and waits for its key.
    """

    value: bytes
    origin: bytes = b""
    key: bytes = b""
    deliveries: int = 0
    worker: bytes = b""
    paused: bool = False
    extended: bool = False
    stale: bool = False
    aside: bool = False

    @property
    def due(self) -> bool:
        return not self.worker and not self.paused


@dataclass
class Plan:
    """A schedule: the value of its jobs, its next tick in unix ms, and how many it has made."""

    value: bytes
    next_ms: int
    ticks: int = 0


class Delayed(NamedTuple):
    """A delayed job."""

    value: bytes
    due: bool
    priority: int
    key: bytes


class Limits(NamedTuple):
    """How many jobs workers may hold at once, how many deliveries there may be, since the time stands still, and how
    many jobs of a key may be in progress.
    """

    concurrency: float = math.inf
    rate: float = math.inf
    per_key: float = math.inf


class Fetched(NamedTuple):
    """One unit of a fetch: the jobs that the worker gets, those that were delivered too often, those too old, and new
    ones that must wait for their keys.
    """

    taken: list[bytes]
    doomed: list[bytes]
    stale: list[bytes]
    passed: list[bytes]


class Jobs:
    """One queue. `last` is the highest ID that it gave, by priority."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.last: dict[int, ID] = {}
        self._delivered: dict[int, ID] = {}  # by priority: jobs behind this one are new
        self._remembered: dict[bytes, bytes] = {}  # dedup ID -> job
        self._failures: list[tuple[bytes, bytes, int, bytes]] = []
        self.dead: list[tuple[bytes, Job]] = []
        self._cancelled: list[tuple[bytes, bytes, bytes, int]] = []
        self.delayed: dict[bytes, Delayed] = {}
        self.counted = 0  # deliveries
        self.plans: dict[bytes, Plan] = {}
        self._results: dict[bytes, bytes] = {}  # first ID -> result

    def known(self, dedup: bytes) -> bytes | None:
        """The job that was put with this dedup ID."""
        return self._remembered.get(dedup)

    def _free(self, first: bytes) -> None:
        """A job will never run; its first ID."""
        for dedup in [dedup for dedup, job in self._remembered.items() if job == first]:
            del self._remembered[dedup]

    def apply(self, name: str, *rest: Any) -> None:
        """Do one operation. Raises WrongId."""
        match name, rest:
            case "put", (job_id, value, dedup, key):
                if dedup and dedup in self._remembered:
                    return
                self._add(job_id, Job(value, key=key))
                if dedup:
                    self._remembered[dedup] = job_id
            case "take", (worker, job_id):
                self._left(worker, job_id)
                job = self.jobs[job_id]
                job.worker, job.paused, job.aside = worker, False, False
                job.deliveries += 1
                self._pass(job_id)
            case "aside", (job_id,):
                self.jobs[job_id].aside = True
                self._pass(job_id)
            case "abandon", (worker, job_id):
                self._left(worker, job_id)
                self._die(job_id)
            case "done", (job_id,):
                del self.jobs[job_id]
            case "retry", (job_id, error, at_once):
                self._fail(job_id, error)
                job = self.jobs[job_id]
                if job.deliveries >= DELIVERIES_MAX:
                    self._die(job_id)
                else:
                    job.worker, job.paused, job.extended = b"", not at_once, False
            case "fail", (job_id, error):
                self._fail(job_id, error)
                self._die(job_id)
            case "release", (job_id,):
                job = self.jobs[job_id]
                job.worker, job.extended = b"", False
                job.deliveries -= 1
                # Otherwise it waits for its retry still, and its key is not free.
                job.aside = bool(job.key) and not job.deliveries
            case "extend", (job_id,):
                self.jobs[job_id].extended = True
            case "redrive", (new,):
                for job_id, (old, job) in zip(new, self.dead, strict=True):
                    self._add(job_id, Job(job.value, job.origin or old, job.key))
                self.dead = []
            case "later", (job_id, value, lane, key):
                self.delayed[job_id] = Delayed(value, False, lane, key)
            case "hasten", (job_id,):
                self.delayed[job_id] = self.delayed[job_id]._replace(due=True)
            case "cancel", (job_id,):
                later = self.delayed.pop(job_id, None)
                gone = self.jobs.pop(job_id) if later is None else Job(later.value, key=later.key)
                self._cancelled.append((job_id, gone.value, gone.key, gone.deliveries))
            case "arrive", (new,):
                for job_id, old in zip(new, self.arriving(), strict=True):
                    delayed = self.delayed.pop(old)
                    self._add(job_id, Job(delayed.value, old, delayed.key))
            case "stale", (job_id, value):
                self._add(job_id, Job(value, stale=True))
            case "expired", (job_id,):
                self._pass(job_id)
                self._die(job_id)
            case "answer", (job_id, result):
                self._results[self.jobs[job_id].origin or job_id] = result
            case "counted", (deliveries,):
                self.counted += deliveries
            case "plan", (name, value, following):
                self.plans[name] = Plan(value, following)
            case "overdue", (name, tick):
                self.plans[name].next_ms = tick
            case "tick", (name, put, following):
                plan = self.plans[name]
                for dedup, job_id in put:
                    self.apply("put", job_id, plan.value, dedup, b"")
                plan.next_ms, plan.ticks = following, plan.ticks + len(put)
            case "bury", ():
                for old, job in self.dead:
                    self._free(job.origin or old)
                self.dead = []
            case "purge", ():
                for job_id in [job_id for job_id, job in self.jobs.items() if not job.worker]:
                    self._pass(job_id)
                    self._free(self.jobs[job_id].origin or job_id)
                self.jobs = {i: job for i, job in self.jobs.items() if job.worker}
            case _:
                raise ValueError(f"a queue does not know {name} with {len(rest)} arguments")

    def _add(self, job_id: bytes, job: Job) -> None:
        lane = priority(job_id)
        last = self.last.get(lane, FIRST)
        if number(job_id) <= last:
            raise WrongId(f"a job got the ID {job_id!r} after the ID {last}")
        self.last[lane] = number(job_id)
        self.jobs[job_id] = job

    def _pass(self, job_id: bytes) -> None:
        """The job is no new one any more."""
        lane = priority(job_id)
        self._delivered[lane] = max(self._delivered.get(lane, FIRST), number(job_id))

    def _is_new(self, job_id: bytes) -> bool:
        return number(job_id) > self._delivered.get(priority(job_id), FIRST)

    def _left(self, worker: bytes, job_id: bytes) -> None:
        """If the worker held the job in an earlier life, that delivery failed."""
        if self.jobs[job_id].worker:
            self._fail(job_id, ABANDONED)

    def _fail(self, job_id: bytes, error: bytes) -> None:
        job = self.jobs[job_id]
        self._failures.append((job_id, job.worker, job.deliveries, error))

    def _die(self, job_id: bytes) -> None:
        self.dead.append((job_id, self.jobs.pop(job_id)))

    def following(
        self, worker: bytes, batch: int, held: set[bytes], limits: Limits = Limits()
    ) -> list[Fetched]:
        """The units of a fetch. It goes on behind one that delivers nothing, because all that it found is dead.
        `held`: jobs that this process holds.
        """
        units: list[Fetched] = []
        gone: set[bytes] = set()
        passed: set[bytes] = set()
        while True:
            found = self._unit_of_fetch(worker, batch, held, limits, gone, passed)
            units.append(found)
            if found.taken or not any(found):
                return units
            gone.update(found.doomed, found.stale)
            passed.update(found.passed)

    def _unit_of_fetch(
        self,
        worker: bytes,
        batch: int,
        held: set[bytes],
        limits: Limits,
        gone: set[bytes],
        passed: set[bytes],
    ) -> Fetched:
        """The lanes in order, until one has something."""
        here = {job_id: job for job_id, job in self._ordered() if job_id not in gone}
        batch = int(min(batch, max(0, limits.rate - self.counted)))
        free = limits.concurrency - sum(1 for job in here.values() if job.worker)
        for lane in sorted(set(map(priority, here)), reverse=True):
            jobs = {job_id: job for job_id, job in here.items() if priority(job_id) == lane}
            taken: list[bytes] = []
            doomed: list[bytes] = []
            alone = False
            for job_id, job in jobs.items():
                if len(taken) == batch or alone:
                    break
                if job.worker == worker and job_id not in held and not job.extended:
                    alone = not self._is_spent(job_id)
                    (taken if alone else doomed).append(job_id)
            room = 0 if alone else int(max(0, min(batch, free)))
            aside = [i for i, job in jobs.items() if job.aside or i in passed]
            new = [i for i, job in jobs.items() if self._is_new(i) and i not in passed]
            again = [i for i, job in jobs.items() if job.due and i not in (*aside, *new)]
            for job_id in again:
                lost = self._was_lost(job_id, jobs[job_id].deliveries)
                if alone or not room:
                    break
                if not (lost and taken):
                    taken.append(job_id)
                    alone, room = lost, 0 if lost else room - 1
            busy = Counter(
                job.key for i, job in here.items() if job.key and self._in_progress(i, passed)
            )
            others, behind = _by_key(jobs, aside, new, room, busy, limits.per_key)
            stale = [job_id for job_id in others if jobs[job_id].stale]
            found = Fetched(
                *([*taken, *(i for i in others if i not in stale)], doomed, stale, behind)
            )
            if any(found):
                return found
        return Fetched([], [], [], [])

    def _was_lost(self, job_id: bytes, deliveries: int) -> bool:
        """Whether the worker of this delivery died."""
        return any(
            (each[0], *each[2:]) == (job_id, deliveries, ABANDONED) for each in self._failures
        )

    def _is_spent(self, job_id: bytes) -> bool:
        """Whether a job whose worker died is not delivered again. If it was not alone then, it is, once more."""
        deliveries = self.jobs[job_id].deliveries
        return deliveries > DELIVERIES_MAX or (
            deliveries == DELIVERIES_MAX and self._was_lost(job_id, deliveries - 1)
        )

    def _in_progress(self, job_id: bytes, passed: set[bytes]) -> bool:
        """Whether the job has a place of its key: from its delivery on, a pause too."""
        job = self.jobs[job_id]
        return not (self._is_new(job_id) or job.aside or job_id in passed)

    def arriving(self) -> list[bytes]:
        """The delayed jobs that are due, in the order in which they arrive."""
        return sorted((job_id for job_id, job in self.delayed.items() if job.due), key=number)

    def _ordered(self) -> list[tuple[bytes, Job]]:
        return sorted(self.jobs.items(), key=lambda each: number(each[0]))

    def contents(self) -> Queued:
        """Everything, in the form in which crash/queues.py reads a queue."""
        jobs = [
            (
                *(job_id, job.value, job.origin, job.key, job.deliveries, job.worker),
                *(job.due, job.extended),
            )
            for job_id, job in self._ordered()
        ]
        dead = [(job_id, job.value, job.key, job.deliveries) for job_id, job in self.dead]
        delayed = [(job_id, *self.delayed[job_id]) for job_id in sorted(self.delayed, key=number)]
        places = [
            (lane, last, self._delivered.get(lane, FIRST))
            for lane, last in sorted(self.last.items())
        ]
        results = sorted(self._results.items())
        plans = sorted((name, *astuple(plan)) for name, plan in self.plans.items())
        return (
            *(tuple(jobs), tuple(self._failures), tuple(dead), tuple(delayed)),
            *(tuple(results), tuple(plans), self.counted, tuple(places)),
            tuple(self._cancelled),
        )


def _by_key(
    jobs: dict[bytes, Job],
    aside: list[bytes],
    new: list[bytes],
    room: int,
    busy: Counter[bytes],
    most: float,
) -> tuple[list[bytes], list[bytes]]:
    """The jobs of a lane that are delivered for the first time, at most `room`, and new ones that must wait for their
    keys.

    aside   jobs that wait for their keys already     new   jobs behind them, in order
    busy    key -> its jobs in progress               most  how many there may be
    """
    taken: list[bytes] = []
    passed: list[bytes] = []
    waiting = [jobs[job_id].key for job_id in aside]
    for job_id in aside:
        key = jobs[job_id].key
        if len(taken) < room and busy[key] < most:
            taken.append(job_id)
            busy[key] += 1
            waiting.remove(key)
    room -= len(taken)
    # A fetch looks at as many new jobs as it may deliver, and at more only if all of them must wait.
    opened, at, want = 0, 0, room
    while room and not opened and at < len(new):
        for job_id in new[at : at + want]:
            if opened == room:
                break
            key = jobs[job_id].key
            if key and (busy[key] >= most or key in waiting):
                passed.append(job_id)
                waiting.append(key)
                continue
            taken.append(job_id)
            opened += 1
            if key:
                busy[key] += 1
        at, want = at + want, want * GROWTH
    return taken, passed


def priority(job_id: bytes) -> int:
    """The priority of a job."""
    return number(job_id)[1] >> SEQUENCE_BITS


def number(job_id: bytes) -> ID:
    """An ID as numbers, for comparisons."""
    ms, _, sequence = job_id.partition(b"-")
    return int(ms), int(sequence)
