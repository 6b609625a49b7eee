"""The promises of a queue, in as few words as it takes: jobs, where they are, and when they may move.

Times are seconds of the manual clock's monotonic time. Where the contract leaves room (the jitter of a pause, when
exactly a lease was last refreshed), the model keeps a window: not before `earliest`, and by `latest` at the latest.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf
from typing import Any

WAITING, FLIGHT, PAUSED, DEAD, DONE, GONE = "waiting flight paused dead done gone".split()
CANCELLED = "cancelled"
UNFINISHED = {WAITING, FLIGHT, PAUSED}
HOUR = 3600.0
SLACK = 0.005  # times are stored in whole milliseconds


@dataclass
class Task:
    """One job.

    holder      number of the living Job object that has its lease, None if nobody has
    owner       the worker whose name it is pending under
    taken       when it was delivered last
    kept        until when `extend` keeps it from others
    earliest    when it may be delivered again, to another worker or after its pause
    latest      by when a worker that asks must get it
    orphan      its holder was lost with its process: its owner's name reads it at once
    foreign     claimed past the queue, by a client that keeps no lease
    lost        a delivery was lost with its process: it may have one more than others
    retry       its own policy: how many deliveries, the pause before a retry, and `linear` or `constant`
    told_progress    what its workers said of its progress
    progress_at      when they said it last; it is stored for a day
    """

    id: str
    value: Any
    headers: dict[str, str] = field(default_factory=dict)
    origin: str | None = None
    poison: bool = False
    priority: int = 0
    key: str | None = None
    where: str = WAITING
    deliveries: int = 0
    owner: str | None = None
    holder: int | None = None
    taken: float = 0.0
    kept: float = -inf
    pause: float = 0.0
    earliest: float = inf
    latest: float = inf
    orphan: bool = False
    foreign: bool = False
    lost: bool = False
    nacks: list[str] = field(default_factory=list)
    retry: tuple[int, float, str] | None = None
    told_progress: set[float] = field(default_factory=set)
    progress_at: float = -inf
    told: set[str] = field(default_factory=set)  # workers whose delivery failed, or was abandoned

    @property
    def first(self) -> str:
        """The ID that its first put returned."""
        return self.origin or self.id

    @property
    def order(self) -> tuple[int, int]:
        ms, _, seq = self.id.partition("-")
        return int(ms), int(seq)


class Model:
    """One queue as it should be."""

    def __init__(
        self,
        name: str,
        retry_after: float,
        max_deliveries: int,
        keep: int,
        per_key: int | None = None,
    ) -> None:
        self.name = name
        self.retry_after = retry_after
        self.max_deliveries = max_deliveries
        self.keep = keep
        self.per_key = per_key  # how many jobs of a key may be in progress
        self.tasks: dict[str, Task] = {}
        self.deaths: dict[str, Task] = {}  # ID of the dead entry -> what died
        self.dedup: dict[str, tuple[str, float]] = {}
        self.held: dict[str, str] = {}  # dedup ID -> the job that took it until it is done
        self.failures = 0  # nacks so far
        self.stopped = False  # the queue is paused
        self.cancels = 0
        self.skipped = False  # whether the latest delivery left a job of a higher priority behind

    def of(self, where: str) -> list[Task]:
        return [task for task in self.tasks.values() if task.where == where]

    def unfinished(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.where in UNFINISHED]

    def add(self, id: str, value: Any, **more: Any) -> Task:
        assert id not in self.tasks, f"{id} was given twice"
        self.tasks[id] = task = Task(id, value, **more)
        return task

    def named(self, first: str) -> list[Task]:
        """The job that was put with this ID, and those that it became when it was redriven."""
        return [task for task in self.tasks.values() if task.first == first]

    def most(self, task: Task) -> int:
        """After how many deliveries it is dead."""
        return self.max_deliveries if task.retry is None else task.retry[0]

    def cancelled(self, task: Task) -> None:
        """Nobody gets it any more. Its dedup ID is free if it had not begun."""
        if task.where == WAITING or task.where == PAUSED and not task.deliveries:
            self.removed(task)
        task.where, task.owner, task.holder = CANCELLED, None, None
        self.cancels += 1

    def removed(self, task: Task) -> None:
        """It was purged, waiting or dead, so no put returns its ID any more."""
        task.where = GONE
        first = task.origin or task.id
        self.dedup = {name: known for name, known in self.dedup.items() if known[0] != first}

    # --- keys

    def waits_for_key(self, task: Task) -> bool:
        """Whether it is not in progress, and all places of its key are taken."""
        if self.per_key is None or task.key is None or _in_progress(task):
            return False
        busy = [t for t in self.unfinished() if t.key == task.key and _in_progress(t)]
        return len(busy) >= self.per_key

    # --- deliveries

    def delivered(
        self,
        job: Any,
        holder: int,
        worker: str,
        now: float,
        time_limit: float | None = None,
        ahead: bool = False,
        freed: Collection[str | None] = (),
    ) -> Task:
        """A worker got a job: was that right? `ahead`: it may have been fetched before the last answer was given.
        `freed`: keys of jobs that died in this fetch. The jobs that waited for them come with the next one.
        """
        task = self.tasks.get(job.id)
        assert task is not None, f"{job.id} was never put"
        assert not task.poison, "what cannot be decoded was delivered"
        assert task.where in UNFINISHED, f"{job.id} is {task.where}, and was delivered"
        assert job.value == task.value and dict(job.headers) == task.headers
        assert job.worker == worker and job.origin == task.origin
        assert job.priority == task.priority and job.key == task.key
        assert not self.waits_for_key(task), f"{job.id}: too many jobs of its key are in progress"
        found = self.must_have_got(worker, now)
        sure = [t for t in found if not self.may_die(t, now) and t.key not in freed]
        self.skipped = any(t.priority > task.priority for t in sure)
        assert int(job.enqueued_at.timestamp() * 1000 + 0.5) == task.order[0]
        if task.where == WAITING:
            before = [
                t
                for t in self.of(WAITING)
                if not t.poison
                and t.order < task.order
                and t.priority == task.priority
                # Those of a batch were fetched before the keys of jobs that are done by now were free.
                and not (self.per_key and t.key and (ahead or t.key in freed))
                and not self.waits_for_key(t)
            ]
            assert not before, f"{job.id} before {before[0].id}"
            if not ahead:
                due = [t for t in sure if t.where != WAITING and t.priority == task.priority]
                # One that was given back unseen is set aside after a restart, and comes by its ID.
                due = [t for t in due if not (self.per_key and t.key and not t.deliveries)]
                assert not due, f"{job.id} is new, and {due[0]} was due"
        elif task.where == PAUSED:
            assert now >= task.earliest - SLACK, (
                f"{job.id}: {task.earliest - now:.3f} s before the end of its pause"
            )
        else:
            own = task.holder is None and task.owner == worker
            assert own or now >= task.earliest - SLACK, (
                f"{job.id} of {task.owner} went to {worker}, {task.earliest - now:.3f} s too early"
            )
            assert task.owner is not None
            task.told.add(task.owner)
        task.lost |= task.orphan or task.foreign
        most = self.most(task) + task.lost
        assert task.deliveries < most, "delivered more often than allowed"
        assert job.deliveries == task.deliveries + 1
        task.where, task.deliveries = FLIGHT, task.deliveries + 1
        task.owner, task.holder, task.taken = worker, holder, now
        task.kept, task.orphan, task.foreign = -inf, False, False
        if time_limit is None:
            task.earliest = task.latest = inf
        else:
            task.earliest = now + max(time_limit, self.retry_after)
            task.latest = now + time_limit + self.retry_after + SLACK
        return task

    def must_have_got(self, worker: str, now: float) -> list[Task]:
        """The jobs that a worker that found nothing should have found."""
        found = []
        for task in self.unfinished():
            if self.waits_for_key(task):
                continue
            if task.where == WAITING or now >= task.latest:
                found.append(task)
            elif task.where == FLIGHT and task.orphan and task.owner == worker:
                if task.kept == -inf:  # what was lent for longer comes when it is late
                    found.append(task)
        return found

    def may_die(self, task: Task, now: float) -> bool:
        """Whether a fetch may move it to the dead by itself."""
        if task.poison:
            return task.where in UNFINISHED
        return (
            task.where == FLIGHT
            and task.deliveries >= self.most(task)
            and (task.holder is None or now >= task.earliest - SLACK)
        )

    # --- what holders do: each says whether it is allowed to

    def holds(self, task: Task, holder: int) -> bool:
        return task.where == FLIGHT and task.holder == holder

    def dropped(self, task: Task, now: float) -> None:
        """Its holder is no more. It refreshed the lease at some time between its delivery and now."""
        if task.earliest == inf:
            self._lease_left(task, now)
        else:
            # Within a time limit; whether it was renewed after the delivery is not followed here.
            task.earliest = max(task.taken + self.retry_after, task.kept)
            task.latest = min(task.latest, max(now, task.kept) + self.retry_after + SLACK)
        task.holder = None

    def _lease_left(self, task: Task, now: float) -> None:
        """It was renewed when it was a third old, if not later."""
        renewed = max(task.taken, now - self.retry_after / 3)
        task.earliest = max(renewed + self.retry_after, task.kept)
        task.latest = max(now, task.kept) + self.retry_after + SLACK

    def extended(self, task: Task, seconds: float, now: float) -> None:
        task.kept = max(task.kept, now + seconds)
        if task.earliest != inf:
            task.earliest = max(task.earliest, task.kept)
            task.latest = max(task.latest, task.kept + self.retry_after + SLACK)

    def nacked(self, task: Task, reason: str, delay: float | None, now: float) -> None:
        assert task.owner is not None
        task.nacks.append(reason)
        task.told.add(task.owner)
        self.failures += 1
        if task.deliveries >= self.most(task):
            self.dies(task)
            return
        if delay is None and task.retry is not None:
            _, base, backoff = task.retry  # without jitter
            low = high = base * (task.deliveries if backoff == "linear" else 1)
        elif delay is None:
            base = self.retry_after * 2 ** (task.deliveries - 1)
            base = min(base, max(HOUR, self.retry_after))
            low, high = base * 0.75, base * 1.25
        else:
            low = high = delay
        self._pauses(task)
        task.pause, task.earliest, task.latest = high, now + low, now + high + SLACK

    def released_(self, task: Task, now: float) -> None:
        self._pauses(task)
        task.deliveries -= 1
        task.pause, task.earliest, task.latest = 0.0, now, now

    def given_back(self, task: Task, now: float) -> None:
        """Fetched ahead, never shown to anybody: as it was, but that it has left its place in the line."""
        self._pauses(task)
        task.pause, task.earliest, task.latest = 0.0, now, now

    def _pauses(self, task: Task) -> None:
        task.where, task.owner, task.holder, task.kept = PAUSED, None, None, -inf
        task.orphan = task.foreign = False

    def dies(self, task: Task) -> None:
        task.where, task.owner, task.holder = DEAD, None, None

    def done(self, task: Task) -> None:
        task.where, task.owner, task.holder = DONE, None, None

    def stolen(self, task: Task, thief: str, now: float) -> None:
        """Claimed past the queue. If it was lent for longer, that stays written down."""
        task.owner, task.holder, task.foreign, task.orphan = thief, None, True, False
        task.deliveries += 1
        task.where, task.taken = FLIGHT, now
        task.earliest = now + self.retry_after
        task.latest = max(now, task.kept) + self.retry_after + SLACK

    # --- what happens to all of them

    def process_died(self, now: float, jumped: bool) -> None:
        """Nobody holds anything. `jumped`: the wall clock did, at some time; then only the upper bounds are known."""
        for task in self.unfinished():
            if task.where == FLIGHT:
                if task.holder is not None:
                    if task.earliest == inf:
                        self._lease_left(task, now)
                    else:
                        task.earliest = max(task.taken + self.retry_after, task.kept)
                        task.latest = max(now, task.kept) + self.retry_after + SLACK
                    task.holder = None
                    task.orphan = True
                elif not task.foreign:
                    task.orphan = True
                if jumped:
                    task.latest = max(task.latest, now + self.retry_after + SLACK)
                    task.earliest = now
            elif task.where == PAUSED and jumped:
                # A clock that stands tells nothing of how long it was; the rest of it begins with the next look.
                task.latest = inf
                task.earliest = now

    def looked(self, now: float) -> None:
        """A worker asked."""
        for task in self.of(PAUSED):
            if task.latest == inf:
                task.latest = now + task.pause + SLACK

    def wall_jumped(self, now: float) -> None:
        """Jobs that nobody in this process holds are timed by stored times alone."""
        for task in self.unfinished():
            if task.where == FLIGHT and (task.foreign or task.orphan):
                task.earliest = now
                if task.foreign:
                    task.latest = inf  # by a clock of which nobody knows what it will show
                else:
                    task.latest = max(task.latest, now + self.retry_after + SLACK)


def _in_progress(task: Task) -> bool:
    """As keys count: from the delivery on, a pause for a retry too."""
    return task.where == FLIGHT or task.where == PAUSED and task.deliveries > 0
