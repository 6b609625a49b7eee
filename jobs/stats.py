"""Stats: the figures of a queue, and of its workers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from tidelog.jobs.progress import Progress

# A name that tidelog gives: QueueOf._worker
_GIVEN: Final = re.compile(r"(?P<host>.+)-(?P<pid>[0-9]+)-(?:shared-)?[0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Stats:
    """A queue at one moment.

    Attributes:
        name: Name of the queue.
        group: Name of the group that the figures are about.
        depth: Jobs that are not done: waiting, in flight or paused.
        waiting: Jobs that are due: new, given back, or their pause is over.
        by_priority: How many of these have which priority. Delayed jobs that are due count once a fetch has seen them.
        in_flight: Number of jobs of each worker, also of dead workers whose jobs were not taken over yet.
        paused: Failed jobs that wait for their retry.
        scheduled: Delayed jobs that are not due yet. They are not part of `depth`.
        dead: Jobs that were given up, by any group.
        failures: Recorded failures that are kept.
        kept: Jobs that are done and still stored: for `keep`, or because another group needs them.
        oldest_seconds: Age of the oldest job that is not done; None if there is none.
        put_per_second: Jobs put, over the last minute at most; None until there are two samples to compare.
        done_per_second: Likewise, jobs that left the queue: done, dead or cancelled.
        cancelled: Jobs that were cancelled since the queue was made, once for each group that had not done them.
        hanging: Handlers that work on beyond their limit of time now, as their runs say.
        killed: Processes that the runs of now have killed, at a limit of time or after a cancel.
    """

    name: str
    group: str
    depth: int
    waiting: int
    in_flight: dict[str, int]
    paused: int
    scheduled: int
    dead: int
    failures: int
    kept: int
    oldest_seconds: float | None
    put_per_second: float | None
    done_per_second: float | None
    by_priority: dict[int, int] = field(default_factory=dict)
    cancelled: int = 0
    hanging: int = 0
    killed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The figures as a dict, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker of a group at one moment, as `Queue.workers` shows it.

    Attributes:
        name: Its name.
        held: How many jobs it holds; if it does not live, how many were not taken over yet.
        jobs: The IDs of these jobs, of 100 at most.
        waits: Whether it waits for a job.
        lives: Whether it is known to live: it waits, or holds jobs over a connection or in a thread that has not ended,
            or is a consumer of the process that has the store open. A worker of another process that does neither for
            the moment is not known to live.
        seen_at: When it last asked for jobs, got one or renewed a lease, in UTC; None if that is not stored.
        got_at: When it last got a job, in UTC; None if it never did.
        hanging: Its handlers that work on beyond their limit of time now, as its run says.
        killed: Processes that its run has killed, at a limit of time or after a cancel.
        progress: How far some of `jobs` have come, by their IDs.
    """

    name: str
    held: int
    jobs: Sequence[str]
    waits: bool
    lives: bool
    seen_at: datetime | None
    got_at: datetime | None
    hanging: int = 0
    killed: int = 0
    progress: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def host(self) -> str | None:
        """The host that its name tells; None unless the name is HOST-PID-NUMBER, as tidelog names workers."""
        given = _GIVEN.fullmatch(self.name)
        return None if given is None else given["host"]

    @property
    def pid(self) -> int | None:
        """The number of the process that its name tells, likewise."""
        given = _GIVEN.fullmatch(self.name)
        return None if given is None else int(given["pid"])

    def as_dict(self) -> dict[str, Any]:
        """The facts as a dict, for JSON: times as ISO 8601."""
        times = {
            name: None if at is None else at.isoformat()
            for name, at in (("seen_at", self.seen_at), ("got_at", self.got_at))
        }
        told = {"jobs": list(self.jobs), "host": self.host, "pid": self.pid}
        come = {job: progress.as_dict() for job, progress in self.progress.items()}
        return asdict(self) | told | times | {"progress": come}
