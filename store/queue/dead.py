"""The dead jobs of a queue: jobs that were given up, kept in `<name>:dead` with the evidence. Look, redrive, purge.

All groups of the queue share them; `DeadJob.group` is the group that gave the job up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import Context, EntryRow, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError
from tidelog.store.queue import rows
from tidelog.store.queue.base import Prepared, Put, QueueBase, told
from tidelog.store.queue.rows import DeadJob
from tidelog.store.queue.streams import wrong_type
from tidelog.store.queue.units import in_units

PAGE: Final = 100  # dead jobs read, or changed, as one unit
Where = Callable[[DeadJob], bool]
Ids = str | Iterable[str] | None
Jobs = list[DeadJob]  # an alias, because `list` is a method below
Texts = list[str]


class DeadBase:
    """The common part of both faces: walking over the dead jobs page by page."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue

    def _page(
        self, start: int, count: int = PAGE, end: int = MAX
    ) -> tuple[list[DeadJob], int | None, Promise]:
        """One page of dead jobs from the ID `start`, the ID where the next page starts, and the promise."""

        def at(stream: Stream | None) -> list[Any]:
            return [] if stream is None else list(reading.between(stream, start, end, count))

        found, promise = self._look(at)
        codec = self._queue._options.codec
        jobs = [DeadJob(entry, row, codec) for entry, row in found]
        following = found[-1][0] + 1 if len(found) == count else None
        return jobs, following, promise

    def _last(self) -> int:
        """The last ID now. A redrive stops there, so that it does not meet jobs that die meanwhile."""
        last, _ = self._look(lambda stream: 0 if stream is None else stream.last_id)
        return int(last)

    def _count(self) -> Answer:
        return self._look(lambda stream: 0 if stream is None else stream.length)

    def _look(self, at: Callable[[Stream | None], Any]) -> Answer:
        """Look at the stream of dead jobs. Raises ResponseError for a key of another type."""
        queue = self._queue
        key = queue._options.dead_key

        def look(state: State) -> Any:
            value = state.databases[queue._db].keys.get(key)
            if value is not None and not isinstance(value, Stream):
                raise wrong_type(key)
            return at(value)

        answer: Answer = queue._core.look(look)
        return answer

    def _one(self, id: str) -> tuple[DeadJob | None, Promise]:
        found, _, promise = self._page(_number(id), 1)
        return (found[0] if found and found[0].id == rows.text(_number(id)) else None), promise

    def _redrive(self, chosen: list[DeadJob]) -> tuple[int, Promise]:
        """Put these back into the queue as one unit; those no longer dead are skipped."""
        prepared = Prepared()

        def words(ctx: Context, row: EntryRow) -> list[list[bytes]]:
            job, priority = tuple(rows.revived(row)), rows.priority_of(row)
            return Put(self._queue, job, None, priority=priority).words(ctx, prepared)

        return self._change(chosen, words)

    def _drop(self, chosen: list[DeadJob]) -> tuple[int, Promise]:
        """Delete these as one unit."""
        return self._change(chosen, lambda ctx, row: [])

    def _change(
        self, chosen: list[DeadJob], words: Callable[[Context, EntryRow], list[list[bytes]]]
    ) -> tuple[int, Promise]:
        queue = self._queue
        key = queue._options.dead_key
        numbers = [_number(job.id) for job in chosen]
        changed = 0

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal changed
            ctx.stream(queue._key)
            stream = ctx.stream(key)
            there = [(n, row) for n in numbers if stream is not None and (row := stream.get(n))]
            changed = len(there)
            if not there:
                return None
            planned = [command for _, row in there for command in words(ctx, row)]
            return [*planned, [b"XDEL", key, *(ids.text(n) for n, _ in there)]]

        _, promise = queue._ask(run_unit, queue._core, queue._db, plan)
        return changed, promise


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
        _number(id)
    return found


def _number(id: str) -> int:
    number = ids.parse_or_none(id.encode()) if isinstance(id, str) and id.isascii() else None
    if number is None:
        raise DataError(f"the ID of a dead job looks like 1767225600000-0, not {id!r}")
    return number


class Dead(DeadBase):
    """The dead jobs of a queue: `Queue.dead`. Iterate over them, oldest first; `len` counts them.

    All groups of the queue share them. Any method may raise the errors that `Queue` lists.
    """

    def __iter__(self) -> Iterator[DeadJob]:
        start: int | None = 0
        while start is not None:
            page, start, promise = self._page(start)
            self._queue._face._hold(promise)
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
        return int(told(self._queue._face, self._count()))

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
        found: DeadJob | None = told(self._queue._face, self._one(id))
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
        now = self._queue._core.time_ns() / 1e9
        chosen = chooser(where, older_than, now)
        total = 0
        for page in self._pages(listed_ids(given)):
            wanted = [job for job in page if chosen(job)]
            if change is None:
                total += len(wanted)
            else:
                for unit in in_units(wanted, value_bytes):
                    total += told(self._queue._face, change(unit))
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
            self._queue._face._hold(promise)
            yield page
