"""Selection: what one decision of a fetch knows, and the jobs that it selects from a lane.

A lane has four sources of jobs. The decision asks them one after the other, and each adds to the lane's `Selection`
what passes its filters:

    source                                         filters
    the worker's own history             look      expired, paused, limits
    retries that are due, lost jobs      look      expired, paused, limits
    jobs that were set aside             keyed     expired, key, limits
    new jobs                             new       expired, key, limits

    expired   a job that is too old, or was delivered too often, becomes a dead job instead
    paused    a job waits until its pause or its lease is over, and while a living worker holds it (known.py)
    key       `concurrency_per_key`: a job whose key has no free place is set aside (keys.py)
    limits    the size of the batch, `rate` and `concurrency` (limits.py)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.engine.api import Context, EntryRow, Group, Stream, decide_xadd_many, log_claim
from tidelog.jobs import rows
from tidelog.jobs.options import Options
from tidelog.jobs.rows import Failure
from tidelog.jobs.streams import stream_at
from tidelog.jobs.units import UNIT_BYTES
from tidelog.jobs.work.alone import Asking
from tidelog.jobs.work.ends import Ends, log_finished
from tidelog.jobs.work.freeing import free_unseen
from tidelog.jobs.work.known import Delivery, JobEntry, Known, Process
from tidelog.jobs.work.limits import Limits

# One source makes at most this many jobs dead jobs in one unit, with about UNIT_BYTES of values at most.
DEAD_MAX: Final = 100
ENDED: Final = -1  # instead of a worker's place in its history
# A worker's place in its own history in each lane, by priority: the next ID, or ENDED. A lane that is missing begins.
History = dict[int, int]


@dataclass(slots=True, eq=False)
class LaneNow:
    """A lane during one decision: its stream and group as they are in memory."""

    known: Known
    options: Options
    stream: Stream
    group: Group

    def is_due(self, mono: float) -> bool:
        """Whether jobs that were delivered before may be due."""
        return mono >= self.known.looks.get(self.options.lease, 0.0)

    def has_first(self) -> bool:
        """Whether there are jobs for their first delivery: new ones, or such as were set aside."""
        stream, known = self.stream, self.known
        if stream.length and stream.last_live_id() > self.group.last_id:
            return True
        return known.keys is not None and known.keys.first(known.priority) is not None

    def has_others(self, mono: float) -> bool:
        """Whether there are jobs for their first delivery, or retries that are due."""
        heap = self.known.heap
        return self.has_first() or bool(heap) and heap[0][0] <= mono


@dataclass(slots=True, eq=False)
class Decision:
    """Facts that all sources of all lanes need.

    mono      monotonic seconds
    lanes     the lanes that exist, in the order in which they are asked
    history   the worker's place in its own history, which moves; None after its end
    unsure    see `Look`
    limits    how many jobs may still be delivered
    ends      what ends in the same unit
    asking    what the worker's process may get; None while nobody has asked, and no process gets less than it asks for
    """

    ctx: Context
    mono: float
    lanes: list[LaneNow]
    worker: bytes
    history: History | None
    unsure: bool
    process: Process
    limits: Limits
    ends: Ends
    asking: Asking | None = None

    @property
    def left(self) -> int:
        """How many jobs may be delivered beside those that were delivered before."""
        asking = self.asking
        if asking is not None and (asking.lone or asking.only):
            return 0
        limits = self.limits
        return int(min(limits.jobs, max(0, limits.free)))

    def ask(self, lane_0: Known, options: Options) -> Asking:
        """The part of a fetch that the worker's process may get."""
        if self.asking is None:
            alone: Any = lane_0.alone
            # not `self`, which would make a cycle
            lanes, mono = self.lanes, self.mono
            self.asking = Asking(
                *(self.ctx, alone, lane_0, options, self.process, self.mono),
                (self.ends.before, self.ends.writing),
                lambda: any(lane.has_others(mono) for lane in lanes),
            )
        return self.asking


class Selection:
    """The jobs that one decision takes from a lane, and those of the lane that end in its unit.

    got      the jobs with their rows, in the order of delivery
    claims   those that were delivered before or set aside -> deliveries, this one included
    opened   those that are new -> deliveries
    passed   whether new jobs were set aside
    dead     entries for `<name>:dead`
    done     jobs that leave the group in this unit: those that the worker has finished, and those that become dead jobs
    unseen   jobs that are taken from clients whose handlers never began with them, with their deliveries
    """

    __slots__ = (
        *("lane", "got", "claims", "opened", "passed", "dead", "done", "unseen", "_limits"),
        *("_most", "_bytes"),
    )

    def __init__(self, lane: LaneNow, done: list[int], limits: Limits) -> None:
        self.lane, self._limits = lane, limits
        self.got: list[JobEntry] = []
        self.claims: dict[int, int] = {}
        self.opened: dict[int, int] = {}
        self.passed = False
        self.dead: list[EntryRow] = []
        self.done = done
        self.unseen: list[tuple[Delivery, JobEntry]] = []
        self._most, self._bytes = DEAD_MAX, 0

    def begin_source(self) -> None:
        """Another source begins; it may make as many dead jobs as the one before."""
        self._most, self._bytes = len(self.dead) + DEAD_MAX, 0

    @property
    def full(self) -> bool:
        """Whether the source should make no more dead jobs in this unit."""
        return len(self.dead) >= self._most or self._bytes >= UNIT_BYTES

    def claim(self, job: int, row: EntryRow, count: int) -> None:
        """Deliver a job that was delivered before or set aside, for the `count`-th time."""
        self._limits.jobs -= 1
        self.claims[job] = count
        self.got.append((job, row, count))

    def bury(
        self, job: int, row: EntryRow, count: int, reason: str, earlier: Iterable[Failure]
    ) -> None:
        """Make a job a dead job."""
        self._bytes += sum(map(len, row))
        self.dead.append(rows.dead_row(self.lane.options, job, row, count, reason, earlier))

    def log(self, now: Decision) -> None:
        """Log all of it that the sources have not logged."""
        lane, ctx = self.lane, now.ctx
        known, options = lane.known, lane.options
        if self.claims:
            log_claim(
                *(ctx, options.key, options.group_key, now.worker, self.claims),
                *(ctx.now, ctx.now, ()),
            )
        if self.dead:
            stream_at(ctx, options.dead_key)
            decide_xadd_many(ctx, options.dead_key, self.dead)
            ctx.effects += free_unseen(ctx, options, lane.stream, self.dead)
        if self.done:
            log_finished(known, options, ctx, lane.stream, self.done)
