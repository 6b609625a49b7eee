"""The dead jobs of a queue, for threads: jobs that were given up, kept in `<name>:dead` with the evidence.

Look, redrive, purge. All groups of the queue share them; `DeadJob.group` is the group that gave the job up.

Generated from adead.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.api.queue.base import QueueBase
from tidelog.api.queue.choosing import (
    Ids,
    Jobs,
    Texts,
    Where,
    at_most,
    chooser,
    listed_ids,
    value_bytes,
)
from tidelog.api.queue.told import told
from tidelog.jobs.redriving import PAGE, DeadBase
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.units import in_units
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration


class Dead(DeadBase):
    """The dead jobs of a queue: `Queue.dead`. Iterate over them, oldest first.

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
            for job in page:
                yield job

    def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first.

        Args:
            count: At most this many; None = all.
            where: Only jobs for which this function is true.

        Raises:
            DataError: An argument is invalid.
        """
        chosen = chooser(where, None, 0)
        at_most(count)
        found: Jobs = []
        for job in self:
            if count is not None and len(found) >= count:
                break
            if chosen(job):
                found.append(job)
        return found

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
            for at in range(0, len(jobs), PAGE):
                yield jobs[at : at + PAGE]
            return
        start: int | None = 0
        end = self._last()
        while start is not None:
            page, start, promise = self._page(start, PAGE, end)
            self._face._hold(promise)
            yield page
