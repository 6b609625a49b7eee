"""SharedDead: the dead jobs of a shared queue. Look, redrive, purge."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from tidelog.api.queue.choosing import Ids, Jobs, Where, chooser, listed_ids
from tidelog.api.queue.chosen import changed, first_chosen, named_pages
from tidelog.client.keeper import Queued
from tidelog.client.lane import Safe
from tidelog.engine import ids
from tidelog.jobs.redriving import PAGE
from tidelog.jobs.rows import DeadJob
from tidelog.store.durations import Duration

_LIST: Final = b"LIST"
FIRST: Final = b"-"  # where the first page starts


class SharedDead:
    """The dead jobs of a shared queue: `SharedQueue.dead`. It has the methods of `Dead`.

    Iterate over them, oldest first; `len` counts them.
    """

    def __init__(self, queue: Queued) -> None:
        self._queue = queue

    def _ask(self, verb: bytes, *args: bytes, safe: Safe = Safe.READ) -> Any:
        queue = self._queue
        words = [b"QUEUE", b"DEAD", queue._key, verb, *args]
        return queue._link.call(words, safe, queue._db)

    def _page(self, start: bytes, count: int) -> Jobs:
        codec = self._queue._options.codec
        found = self._ask(_LIST, start, b"%d" % count)
        return [DeadJob(ids.parse(id), tuple(row), codec) for id, row in found]

    def __iter__(self) -> Iterator[DeadJob]:
        start: bytes | None = FIRST
        while start is not None:
            page, start = self._following(start)
            yield from page

    def _following(self, start: bytes) -> tuple[Jobs, bytes | None]:
        """A page of dead jobs, and where the next one starts; None at the end."""
        page = self._page(start, PAGE)
        return page, _after(page[-1]) if page else None

    def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first. As `Dead.list`.

        Args:
            count: At most this many; None = all.
            where: Only jobs for which this function is true.

        Raises:
            DataError: An argument is invalid.
        """
        return first_chosen(self, count, where)

    def count(self) -> int:
        """Number of dead jobs."""
        return int(self._ask(b"COUNT"))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def get(self, id: str) -> DeadJob | None:
        """Look up one dead job. As `Dead.get`.

        Args:
            id: ID of the dead job (`DeadJob.id`).

        Returns:
            The dead job; None if there is none with this ID.

        Raises:
            DataError: The ID is malformed.
        """
        listed_ids([id])
        wanted = ids.text(ids.parse(id.encode()))
        found = self._page(wanted, 1)
        return found[0] if found and found[0].id.encode() == wanted else None

    def redrive(self, ids: Ids = None, *, where: Where | None = None, dry_run: bool = False) -> int:
        """Put dead jobs back into the queue, as new jobs with `SharedJob.origin`. As `Dead.redrive`.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            dry_run: Only count them.

        Returns:
            How many were put back, or would be.

        Raises:
            DataError: An argument is invalid.
        """
        return self._each(ids, where, None, None if dry_run else b"REDRIVE")

    def purge(
        self, ids: Ids = None, *, where: Where | None = None, older_than: Duration | None = None
    ) -> int:
        """Delete dead jobs. As `Dead.purge`.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            older_than: Only jobs that died at least this many seconds (or a timedelta) ago.

        Returns:
            How many were deleted.

        Raises:
            DataError: An argument is invalid.
        """
        return self._each(ids, where, older_than, b"PURGE")

    def _each(
        self, given: Ids, where: Where | None, older_than: Duration | None, verb: bytes | None
    ) -> int:
        now = 0.0
        if older_than is not None:  # by the clock of the store
            clock = self._queue._link.call((b"TIME",), Safe.READ)
            now = int(clock[0]) + int(clock[1]) / 1e6
        chosen, listed = chooser(where, older_than, now), listed_ids(given)
        pages = self._pages() if listed is None else named_pages(self.get, listed)
        return changed(pages, chosen, None if verb is None else partial(self._change, verb))

    def _change(self, verb: bytes, unit: Jobs) -> int:
        # A redriven job is dead no more, so a repeated call does nothing. Only the number may be too small.
        return int(self._ask(verb, *(job.id.encode() for job in unit), safe=Safe.FENCED))

    def _pages(self) -> Iterator[Jobs]:
        """All that are dead now, page by page."""
        left = self.count()  # jobs that die meanwhile are not met
        start = FIRST
        while left > 0 and (page := self._page(start, min(PAGE, left))):
            left -= len(page)
            start = _after(page[-1])
            yield page


def _after(job: DeadJob) -> bytes:
    return ids.text(ids.parse(job.id.encode()) + 1)
