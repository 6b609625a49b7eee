"""The dead jobs of a queue, for threads: jobs that were given up, kept in `<name>:dead` with the evidence.

Look, redrive, purge. All groups of the queue share them; `DeadJob.group` is the group that gave the job up.

Generated from adead.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.api.queue.base import QueueBase
from tidelog.api.queue.choosing import Ids, Jobs, Where, chooser, listed_ids
from tidelog.api.queue.chosen import changed, first_chosen, named_pages
from tidelog.api.queue.told import told
from tidelog.jobs.redriving import PAGE, DeadBase
from tidelog.jobs.rows import DeadJob
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
        chosen = chooser(where, older_than, self._engine.store_ms() / 1000)
        ids = listed_ids(given)
        pages = self._pages() if ids is None else named_pages(self.get, ids)
        held = None if change is None else lambda unit: told(self._face, change(unit))
        return changed(pages, chosen, held)

    def _pages(self) -> Iterator[Jobs]:
        """All that are dead now, page by page."""
        start: int | None = 0
        end = self._last()
        while start is not None:
            page, start, promise = self._page(start, PAGE, end)
            self._face._hold(promise)
            yield page
