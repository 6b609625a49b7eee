"""Jobs: what a queue must contain, by a plain model of its documentation. It imports nothing of the engine.

Operations of queues in a unit (crash/model.py); a job is called by its ID, and IDs are chosen by the store:

    ["put", queue, id, value, dedup ID or b""]    ["release", queue, id]
    ["take", queue, worker, id]                   ["extend", queue, id]
    ["abandon", queue, worker, id]                ["redrive", queue, [id, ...]]
    ["done", queue, id]                           ["bury", queue]
    ["retry", queue, id, error, at once]          ["purge", queue]
    ["fail", queue, id, error]                    ["later", queue, id, value]
    ["arrive", queue, [id, ...]]                  ["cancel", queue, id], ["hasten", queue, id]
    ["stale", queue, id, value]                   ["expired", queue, id]
    ["answer", queue, id, result]                 ["counted", queue, deliveries]
    ["plan", queue, name, value, next tick]       ["overdue", queue, name, tick]
    ["tick", queue, name, [[dedup ID, id], ...], next tick]

`abandon` is what a fetch does to a job that its worker held when it died, and that was delivered too often already.
`redrive` has the new IDs of the dead jobs, oldest first; `bury` deletes them. `later` puts a delayed job, and `hasten`
makes it due. Before the next fetch the due ones arrive in the queue: `arrive` has their new IDs. `stale` puts a job
that is too old to be delivered, and `expire` is what a fetch does to it. `answer` stores the result of a job, in the
unit of its `done`. `counted` counts deliveries against the rate of the queue. `plan` makes a schedule that puts jobs
into the queue, `overdue` makes it tick, and `tick` puts the jobs, each with a dedup ID, so that none is put twice.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any, Final, NamedTuple

from tidelog.crash.errors import WrongId

# A queue in the form in which the model and the store are compared: jobs as (ID, value, first ID, deliveries, worker,
# due), failures as (ID, worker, deliveries, error), oldest first, dead jobs as (ID, value, deliveries), delayed jobs as
# (ID, value, due), results as (first ID, result), schedules as (name, value, next tick, ticks made), and the number of
# deliveries that count against the rate.
Queued = tuple[Any, ...]

NAMES: Final = (
    "put", "take", "abandon", "done", "retry", "fail", "release", "extend", "redrive", "bury", "purge",
    "later", "arrive", "cancel", "hasten", "stale", "expired", "answer", "counted", "plan", "overdue", "tick",
)  # fmt: skip
ABANDONED: Final = b"abandoned"
DELIVERIES_MAX: Final = 3


@dataclass
class Job:
    """A job that is not done. `worker` holds it; b"" for none. `paused`: it failed and waits for its retry."""

    value: bytes
    origin: bytes = b""
    deliveries: int = 0
    worker: bytes = b""
    paused: bool = False
    extended: bool = False
    stale: bool = False

    @property
    def due(self) -> bool:
        return not self.worker and not self.paused


@dataclass
class Plan:
    """A schedule: the value of its jobs, its next tick in unix ms, and how many it has made."""

    value: bytes
    next_ms: int
    ticks: int = 0


class Limits(NamedTuple):
    """How many jobs workers may hold at once, and how many deliveries there may be, since the time stands still."""

    concurrency: float = math.inf
    rate: float = math.inf


class Fetched(NamedTuple):
    """One unit of a fetch: the jobs that the worker gets, those that were delivered too often, and those too old."""

    taken: list[bytes]
    doomed: list[bytes]
    stale: list[bytes]


class Jobs:
    """One queue. `last` is the highest ID that it gave."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.last = (0, 0)
        self._delivered = (0, 0)  # jobs behind this one are new
        self._remembered: dict[bytes, bytes] = {}  # dedup ID -> job
        self._failures: list[tuple[bytes, bytes, int, bytes]] = []
        self.dead: list[tuple[bytes, Job]] = []
        self.delayed: dict[bytes, tuple[bytes, bool]] = {}  # ID -> (value, due)
        self.counted = 0  # deliveries
        self.plans: dict[bytes, Plan] = {}
        self._results: dict[bytes, bytes] = {}  # first ID -> result

    def known(self, dedup: bytes) -> bytes | None:
        """The job that was put with this dedup ID."""
        return self._remembered.get(dedup)

    def apply(self, name: str, *rest: Any) -> None:
        """Do one operation. Raises WrongId."""
        match name, rest:
            case "put", (job_id, value, dedup):
                if dedup and dedup in self._remembered:
                    return
                self._add(job_id, Job(value))
                if dedup:
                    self._remembered[dedup] = job_id
            case "take", (worker, job_id):
                self._left(worker, job_id)
                job = self.jobs[job_id]
                job.worker, job.paused = worker, False
                job.deliveries += 1
                self._delivered = max(self._delivered, number(job_id))
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
            case "extend", (job_id,):
                self.jobs[job_id].extended = True
            case "redrive", (new,):
                for job_id, (old, job) in zip(new, self.dead, strict=True):
                    self._add(job_id, Job(job.value, job.origin or old))
                self.dead = []
            case "later", (job_id, value):
                self.delayed[job_id] = value, False
            case "hasten", (job_id,):
                self.delayed[job_id] = self.delayed[job_id][0], True
            case "cancel", (job_id,):
                del self.delayed[job_id]
            case "arrive", (new,):
                for job_id, old in zip(new, self.arriving(), strict=True):
                    self._add(job_id, Job(self.delayed.pop(old)[0], old))
            case "stale", (job_id, value):
                self._add(job_id, Job(value, stale=True))
            case "expired", (job_id,):
                self._delivered = max(self._delivered, number(job_id))
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
                    self.apply("put", job_id, plan.value, dedup)
                plan.next_ms, plan.ticks = following, plan.ticks + len(put)
            case "bury", ():
                self.dead = []
            case "purge", ():
                self.jobs = {i: job for i, job in self.jobs.items() if job.worker}
            case _:
                raise ValueError(f"a queue does not know {name} with {len(rest)} arguments")

    def _add(self, job_id: bytes, job: Job) -> None:
        if number(job_id) <= self.last:
            raise WrongId(f"a job got the ID {job_id!r} after the ID {self.last}")
        self.last = number(job_id)
        self.jobs[job_id] = job

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
        while True:
            found = self._unit_of_fetch(worker, batch, held, limits, gone)
            units.append(found)
            if found.taken or not (found.doomed or found.stale):
                return units
            gone.update(found.doomed, found.stale)

    def _unit_of_fetch(
        self, worker: bytes, batch: int, held: set[bytes], limits: Limits, gone: set[bytes]
    ) -> Fetched:
        taken: list[bytes] = []
        doomed: list[bytes] = []
        here = [(job_id, job) for job_id, job in self._ordered() if job_id not in gone]
        batch = int(min(batch, max(0, limits.rate - self.counted)))
        free = limits.concurrency - sum(1 for _, job in here if job.worker)
        for job_id, job in here:
            if len(taken) == batch:
                break
            if job.worker == worker and job_id not in held and not job.extended:
                spent = job.deliveries >= DELIVERIES_MAX
                (doomed if spent else taken).append(job_id)
        due = [(number(i) > self._delivered, i) for i, job in here if job.due]
        room = int(max(0, min(batch - len(taken), free)))
        others = [job_id for _, job_id in sorted(due, key=lambda each: each[0])][:room]
        stale = [job_id for job_id in others if self.jobs[job_id].stale]
        return Fetched([*taken, *(i for i in others if i not in stale)], doomed, stale)

    def arriving(self) -> list[bytes]:
        """The delayed jobs that are due, in the order in which they arrive."""
        return sorted((job_id for job_id, (_, due) in self.delayed.items() if due), key=number)

    def _ordered(self) -> list[tuple[bytes, Job]]:
        return sorted(self.jobs.items(), key=lambda each: number(each[0]))

    def contents(self) -> Queued:
        """Everything, in the form in which crash/queues.py reads a queue."""
        jobs = [
            (job_id, job.value, job.origin, job.deliveries, job.worker, job.due)
            for job_id, job in self._ordered()
        ]
        dead = [(job_id, job.value, job.deliveries) for job_id, job in self.dead]
        delayed = [(job_id, *self.delayed[job_id]) for job_id in sorted(self.delayed, key=number)]
        results = sorted(self._results.items())
        plans = sorted((name, *astuple(plan)) for name, plan in self.plans.items())
        return (
            *(tuple(jobs), tuple(self._failures), tuple(dead), tuple(delayed)),
            *(tuple(results), tuple(plans), self.counted),
        )


def number(job_id: bytes) -> tuple[int, int]:
    """An ID as numbers, for comparisons."""
    ms, _, sequence = job_id.partition(b"-")
    return int(ms), int(sequence)
