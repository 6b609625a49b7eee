"""The dead jobs of a queue, for asyncio: jobs that were given up, kept in `<name>:dead` with the evidence.

Look, redrive, purge. All groups of the queue share them; `DeadJob.group` is the group that gave the job up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidelog.api.queue.abackend import AsyncBackend
from tidelog.api.queue.achosen import changed, first_chosen, named_pages
from tidelog.api.queue.choosing import Ids, Jobs, Where, chooser, listed_ids
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


class AsyncDead:
    """The dead jobs of a queue: `AsyncQueue.dead`. Iterate over them, oldest first.

    All groups of the queue share them. Any method may raise the errors that `AsyncQueue` lists, or `AsyncSharedQueue`.
    """

    def __init__(self, backend: AsyncBackend) -> None:
        self._backend = backend

    async def _page(self, start: int, count: int = PAGE) -> Jobs:
        """One page of dead jobs, from the ID `start` on."""
        options = self._backend.options
        found = await self._backend.ask(ListDead(start, count))
        return [DeadJob(job, row, options.codec, options.name) for job, row in found]

    async def __aiter__(self) -> AsyncIterator[DeadJob]:
        start = 0
        while page := await self._page(start):
            for job in page:
                yield job
            start = dead_number(page[-1].id) + 1

    async def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first.

        Args:
            count: At most this many; None = all.
            where: Only jobs for which this function is true.

        Raises:
            DataError: An argument is invalid.
        """
        return await first_chosen(self, count, where)

    async def count(self) -> int:
        """Number of dead jobs."""
        return int(await self._backend.ask(CountDead()))

    # threads: def __len__(self) -> int:
    # threads:     return self.count()

    # threads: def __bool__(self) -> bool:
    # threads:     return True

    async def get(self, id: str) -> DeadJob | None:
        """Look up one dead job.

        Args:
            id: ID of the dead job (`DeadJob.id`).

        Returns:
            The dead job; None if there is none with this ID.

        Raises:
            DataError: The ID is malformed.
        """
        number = dead_number(id)
        found = await self._page(number, 1)
        return found[0] if found and dead_number(found[0].id) == number else None

    async def redrive(
        self, ids: Ids = None, *, where: Where | None = None, dry_run: bool = False
    ) -> int:
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
        return await self._each(ids, where, None, None if dry_run else Redrive)

    async def purge(
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
        return await self._each(ids, where, older_than, PurgeDead)

    async def _each(
        self,
        given: Ids,
        where: Where | None,
        older_than: Duration | None,
        change: type[ChangeDead] | None,
    ) -> int:
        chosen = chooser(where, older_than, 0 if older_than is None else await self._backend.time())
        ids = listed_ids(given)
        pages = self._pages() if ids is None else named_pages(self.get, ids)
        return await changed(self._backend.ask, pages, chosen, change)

    async def _pages(self) -> AsyncIterator[Jobs]:
        """All that are dead now, page by page."""
        left = await self.count()  # jobs that die meanwhile are not met
        start = 0
        while left > 0 and (page := await self._page(start, min(PAGE, left))):
            left -= len(page)
            start = dead_number(page[-1].id) + 1
            yield page
