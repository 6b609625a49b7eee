"""The dead jobs of a queue, for asyncio: jobs that were given up, kept in `<name>:dead` with the evidence.

Look, redrive, purge. All groups of the queue share them; `DeadJob.group` is the group that gave the job up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tidelog.api.queue.achosen import changed, first_chosen, named_pages
from tidelog.api.queue.atold import told
from tidelog.api.queue.base import QueueBase
from tidelog.api.queue.choosing import Ids, Jobs, Where, chooser, listed_ids
from tidelog.jobs.redriving import PAGE, DeadBase
from tidelog.jobs.rows import DeadJob
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration


class AsyncDead(DeadBase):
    """The dead jobs of a queue: `AsyncQueue.dead`. Iterate over them, oldest first.

    All groups of the queue share them. Any method may raise the errors that `AsyncQueue` lists.
    """

    def __init__(self, queue: QueueBase) -> None:
        super().__init__(queue._engine)
        self._face = queue._face

    async def __aiter__(self) -> AsyncIterator[DeadJob]:
        start: int | None = 0
        while start is not None:
            page, start, promise = self._page(start)
            await self._face._hold(promise)
            for job in page:
                yield job

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
        return int(await told(self._face, self._count()))

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
        found: DeadJob | None = await told(self._face, self._one(id))
        return found

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
        return await self._each(ids, where, None, None if dry_run else self._redrive)

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
        return await self._each(ids, where, older_than, self._drop)

    async def _each(
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
        return await changed(pages, chosen, held)

    async def _pages(self) -> AsyncIterator[Jobs]:
        """All that are dead now, page by page."""
        start: int | None = 0
        end = self._last()
        while start is not None:
            page, start, promise = self._page(start, PAGE, end)
            await self._face._hold(promise)
            yield page
