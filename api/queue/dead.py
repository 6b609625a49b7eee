"""The dead jobs of a queue, for threads: jobs that were given up, kept in `<name>:dead` with the evidence.

Look, redrive, purge. All groups of the queue share them; `DeadJob.group` is the group that gave the job up.

Generated from adead.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.api.queue.backend import Backend
from tidelog.api.queue.choosing import Ids, Jobs, Where, chooser, listed_ids
from tidelog.api.queue.chosen import changed, first_chosen, named_pages
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.verbs.dead import (
    PAGE,
    ChangeDead,
    CountDead,
    ListDead,
    PurgeDead,
    Redrive,
    dead_number,
)
from tidelog.store.durations import Duration


class Dead:
    """The dead jobs of a queue: `Queue.dead`. Iterate over them, oldest first.

    All groups of the queue share them. Any method may raise the errors that `Queue` lists, or `SharedQueue`.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def _page(self, start: int, count: int = PAGE) -> Jobs:
        """One page of dead jobs, from the ID `start` on."""
        options = self._backend.options
        found = self._backend.ask(ListDead(start, count))
        return [DeadJob(job, row, options.codec, options.name) for job, row in found]

    def __iter__(self) -> Iterator[DeadJob]:
        start = 0
        while page := self._page(start):
            for job in page:
                yield job
            start = dead_number(page[-1].id) + 1

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
        return int(self._backend.ask(CountDead()))

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
        number = dead_number(id)
        found = self._page(number, 1)
        return found[0] if found and dead_number(found[0].id) == number else None

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
        return self._each(ids, where, None, None if dry_run else Redrive)

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
        return self._each(ids, where, older_than, PurgeDead)

    def _each(
        self,
        given: Ids,
        where: Where | None,
        older_than: Duration | None,
        change: type[ChangeDead] | None,
    ) -> int:
        chosen = chooser(where, older_than, 0 if older_than is None else self._backend.time())
        ids = listed_ids(given)
        pages = self._pages() if ids is None else named_pages(self.get, ids)
        return changed(self._backend.ask, pages, chosen, change)

    def _pages(self) -> Iterator[Jobs]:
        """All that are dead now, page by page."""
        left = self.count()  # jobs that die meanwhile are not met
        start = 0
        while left > 0 and (page := self._page(start, min(PAGE, left))):
            left -= len(page)
            start = dead_number(page[-1].id) + 1
            yield page
