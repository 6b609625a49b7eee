"""Jobs: what a queue must contain, by a plain model of its documentation. It imports nothing of the engine.

Operations of queues in a unit (crash/oracle.py); a job is called by its ID, and IDs are chosen by the store:

    ["put", queue, id, value, dedup ID or b""]    ["release", queue, id]
    ["take", queue, worker, id]                   ["extend", queue, id]
    ["abandon", queue, worker, id]                ["redrive", queue, [id, ...]]
    ["done", queue, id]                           ["bury", queue]
    ["retry", queue, id, error, at once]          ["purge", queue]
    ["fail", queue, id, error]                    ["later", queue, id, value]
    ["arrive", queue, [id, ...]]                  ["cancel", queue, id], ["hasten", queue, id]

`abandon` is what a fetch does to a job that its worker held when it died, and that was delivered too often already.
`redrive` has the new IDs of the dead jobs, oldest first; `bury` deletes them. `later` puts a delayed job, and `hasten`
makes it due. Before the next fetch the due ones arrive in the queue: `arrive` has their new IDs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tidelog.crash.errors import WrongId

# A queue in the form in which the model and the store are compared: jobs as (ID, value, first ID, deliveries, worker,
# due), failures as (ID, worker, deliveries, error), oldest first, dead jobs as (ID, value, deliveries), and delayed
# jobs as (ID, value, due).
Queued = tuple[Any, ...]

NAMES: Final = (
    "put", "take", "abandon", "done", "retry", "fail", "release", "extend", "redrive", "bury", "purge",
    "later", "arrive", "cancel", "hasten",
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

    @property
    def due(self) -> bool:
        return not self.worker and not self.paused


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
        self, worker: bytes, batch: int, held: set[bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """(the jobs that a fetch gives a worker, those that it makes dead). `held`: jobs that this process holds."""
        taken: list[bytes] = []
        doomed: list[bytes] = []
        own = [
            job_id
            for job_id, job in self._ordered()
            if job.worker == worker and job_id not in held and not job.extended
        ]
        for job_id in own:
            if len(taken) == batch:
                break
            spent = self.jobs[job_id].deliveries >= DELIVERIES_MAX
            (doomed if spent else taken).append(job_id)
        due = [(number(i) > self._delivered, i) for i, job in self._ordered() if job.due]
        new_last = [job_id for _, job_id in sorted(due, key=lambda each: each[0])]
        return (taken + new_last)[:batch], doomed

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
        return tuple(jobs), tuple(self._failures), tuple(dead), tuple(delayed)


def number(job_id: bytes) -> tuple[int, int]:
    """An ID as numbers, for comparisons."""
    ms, _, sequence = job_id.partition(b"-")
    return int(ms), int(sequence)
