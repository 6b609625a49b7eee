"""Stats: the figures of a queue."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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
        done_per_second: Likewise, jobs that left the queue: done or dead.
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

    def as_dict(self) -> dict[str, Any]:
        """The figures as a dict, for JSON."""
        return asdict(self)
