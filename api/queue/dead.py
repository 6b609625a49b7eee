"""The dead jobs of a queue: jobs that were given up, kept in `<name>:dead` with the evidence. Look, redrive, purge.

All groups of the queue share them; `DeadJob.group` is the group that gave the job up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tidelog.api.queue.base import QueueBase, told
from tidelog.jobs.redriving import PAGE, DeadBase, dead_number
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.units import in_units
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

Where = Callable[[DeadJob], bool]
Ids = str | Iterable[str] | None
Jobs = list[DeadJob]  # an alias, because `list` is a method below
Texts = list[str]


def chooser(where: Where | None, older_than: Duration | None, now: float) -> Where:
    """One condition from `where` and `older_than` (seconds). Raises DataError."""
    age = None if older_than is None else seconds("older_than", older_than, zero=True)
    if where is not None and not callable(where):
        raise DataError(
            f"the argument where must be a function that takes a dead job, not {where!r}"
        )

    def chosen(job: DeadJob) -> bool:
        if age is not None and now - job.died_at.timestamp() < age:
            return False
        return where is None or bool(where(job))

    return chosen


def value_bytes(job: DeadJob) -> int:
    """The size of a dead job, for `in_units`."""
    return len(job.raw)


def at_most(count: int | None) -> None:
    """Check the `count` of `list`. Raises DataError."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise DataError(f"count must be an integer of at least 0, or None, not {count!r}")


def first_chosen(jobs: Iterable[DeadJob], count: int | None, where: Where | None) -> Jobs:
    """The first `count` jobs for which `where` is true; None = all. Raises DataError before it takes a job."""
    chosen = chooser(where, None, 0)
    at_most(count)
    found: Jobs = []
    for job in jobs:
        if count is not None and len(found) >= count:
            break
        if chosen(job):
            found.append(job)
    return found


def listed_ids(given: Ids) -> list[str] | None:
    """The IDs that the caller gave, None for all. Raises DataError."""
    if given is None:
        return None
    if not isinstance(given, Iterable):
        raise DataError(f"ids must be one ID or several IDs, not {given!r}")
    found = [given] if isinstance(given, str) else list(given)
    for id in found:
        dead_number(id)
    return found


class Dead(DeadBase):
    """The dead jobs of a queue: `Queue.dead`. Iterate over them, oldest first; `len` counts them.

    All groups of the queue share them. Any method may raise the errors that `Queue` lists.
    """

    def __init__(self, queue: QueueBase) -> None:
        super().__init__(queue._engine)
        self._face = queue._face

    def __iter__(self) -> Iterator[DeadJob]:
        start: int | None = 0
        while start is not None:
            page, start, promise = self._page(start)
            self._face._hold(promise)
            yield from page

    def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first.

        Args:
            count: At most this many; None = all.
            where: Only jobs for which this function is true.

        Raises:
            DataError: An argument is invalid.
        """
        return first_chosen(self, count, where)

    def count(self) -> int:
        """Number of dead jobs."""
        return int(told(self._face, self._count()))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def get(self, id: str) -> DeadJob | None:
        """Look up one dead job.

        Args:
            id: ID of the dead job (`DeadJob.id`).

        Returns:
            The dead job; None if there is none with this ID.

        Raises:
            DataError: The ID is malformed.
        """
        found: DeadJob | None = told(self._face, self._one(id))
        return found

    def redrive(self, ids: Ids = None, *, where: Where | None = None, dry_run: bool = False) -> int:
        """Put dead jobs back into the queue, as new jobs with `Job.origin`. `max_depth` does not apply.

        Each is put in one unit with its removal, up to 100 in one unit.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            dry_run: Only count them.

        Returns:
            How many were put back, or would be.

        Raises:
            DataError: An argument is invalid.
        """
        return self._each(ids, where, None, None if dry_run else self._redrive)

    def purge(
        self, ids: Ids = None, *, where: Where | None = None, older_than: Duration | None = None
    ) -> int:
        """Delete dead jobs.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            older_than: Only jobs that died at least this many seconds (or a timedelta) ago.

        Returns:
            How many were deleted.

        Raises:
            DataError: An argument is invalid.
        """
        return self._each(ids, where, older_than, self._drop)

    def _each(
        self,
        given: Ids,
        where: Where | None,
        older_than: Duration | None,
        change: Callable[[Jobs], tuple[int, Promise]] | None,
    ) -> int:
        now = self._engine.core.time_ns() / 1e9
        chosen = chooser(where, older_than, now)
        total = 0
        for page in self._pages(listed_ids(given)):
            wanted = [job for job in page if chosen(job)]
            if change is None:
                total += len(wanted)
            else:
                for unit in in_units(wanted, value_bytes):
                    total += told(self._face, change(unit))
        return total

    def _pages(self, given: Texts | None) -> Iterator[Jobs]:
        if given is not None:
            found = [self.get(id) for id in dict.fromkeys(given)]
            jobs = [job for job in found if job is not None]
            yield from (jobs[at : at + PAGE] for at in range(0, len(jobs), PAGE))
            return
        start: int | None = 0
        end = self._last()
        while start is not None:
            page, start, promise = self._page(start, PAGE, end)
            self._face._hold(promise)
            yield page
