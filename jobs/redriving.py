"""The dead jobs of a queue: look at them, put them back, delete them, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import Context, EntryRow, State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import job_number
from tidelog.jobs.putting import Prepared, Put
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.streams import wrong_type
from tidelog.jobs.work.freeing import first_of_dead, free_window
from tidelog.store.commit.batch import Decided
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise

PAGE: Final = 100  # dead jobs read, or changed, as one unit


class DeadBase:
    """The dead jobs of a queue, page by page; what changes is one unit.

    engine    of any group: all groups of a queue share its dead jobs
    """

    def __init__(self, engine: QueueEngine) -> None:
        self._engine = engine

    def _page(
        self, start: int, count: int = PAGE, end: int = MAX
    ) -> tuple[list[DeadJob], int | None, Promise]:
        """One page of dead jobs from the ID `start`, the ID where the next page starts, and the promise."""

        def at(stream: Stream | None) -> list[Any]:
            return [] if stream is None else list(reading.between(stream, start, end, count))

        found, promise = self._look(at)
        codec = self._engine.options.codec
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
        engine = self._engine
        key = engine.options.dead_key

        def look(state: State) -> Any:
            value = state.databases[engine.db].keys.get(key)
            if value is not None and not isinstance(value, Stream):
                raise wrong_type(key)
            return at(value)

        answer: Answer = engine.core.look(look)
        return answer

    def _one(self, id: str) -> tuple[DeadJob | None, Promise]:
        number = dead_number(id)
        found, _, promise = self._page(number, 1)
        return (found[0] if found and found[0].id == rows.text(number) else None), promise

    def _redrive(self, chosen: list[DeadJob]) -> tuple[int, Promise]:
        """Put these back into the queue as one unit; those no longer dead are skipped."""
        prepared = Prepared()

        def words(ctx: Context, row: EntryRow) -> list[list[bytes]]:
            options = JobOptions(priority=rows.priority_of(row))
            return Put(self._engine, tuple(rows.revived(row)), options).words(ctx, prepared)

        return self._change(chosen, words)

    def _drop(self, chosen: list[DeadJob]) -> tuple[int, Promise]:
        """Delete these as one unit."""
        options = self._engine.options

        def words(ctx: Context, row: EntryRow) -> list[list[bytes]]:
            return [*map(Decided, free_window(ctx, options, first_of_dead(row)))]

        return self._change(chosen, words)

    def _change(
        self, chosen: list[DeadJob], words: Callable[[Context, EntryRow], list[list[bytes]]]
    ) -> tuple[int, Promise]:
        engine = self._engine
        key = engine.options.dead_key
        numbers = [dead_number(job.id) for job in chosen]
        changed = 0

        def plan(ctx: Context) -> list[list[bytes]] | None:
            nonlocal changed
            ctx.stream(engine.options.key)
            stream = ctx.stream(key)
            there = [(n, row) for n in numbers if stream is not None and (row := stream.get(n))]
            changed = len(there)
            if not there:
                return None
            planned = [command for _, row in there for command in words(ctx, row)]
            return [*planned, [b"XDEL", key, *(ids.text(n) for n, _ in there)]]

        _, promise = engine.unit(plan)
        return changed, promise


def dead_number(id: str) -> int:
    """The ID of a dead job as a number. Raises DataError."""
    return job_number(id, "a dead job")
