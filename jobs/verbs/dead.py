"""QUEUE DEAD: the dead jobs of a queue: look at them, put them back, delete them. All groups share them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import Context, EntryRow, State, Stream, reading
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.ids import MAX
from tidelog.engine.integers import int64
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import job_number
from tidelog.jobs.own import Own, checked_count, job_id
from tidelog.jobs.putting import Prepared, Put
from tidelog.jobs.streams import stream_at, wrong_type
from tidelog.jobs.units import in_units
from tidelog.jobs.verbs.verb import WORKS, Facts, Safe, Verb
from tidelog.jobs.work.freeing import first_of_dead, free_window
from tidelog.store.commit.batch import Decided
from tidelog.store.commit.core import Answer
from tidelog.store.commit.durability import Promise

PAGE: Final = 100  # dead jobs read, or changed, as one unit
Row = tuple[int, EntryRow]  # a dead job: its ID and its fields


class Dead(Verb):
    """A request about the dead jobs of a queue: one of the classes below, which add a word of their own."""

    __slots__ = ()

    name = b"DEAD"
    facts = Facts(
        *(-4, WORKS, "RW access delete", "0.1.0"),
        "Show dead jobs, put them back, or delete them",
        (
            "DEAD <name> COUNT | LIST [<start> [<count>]] | REDRIVE <id> [<id> ...] | PURGE <id> [<id> ...]",
            "Dead jobs.",
        ),
    )
    of_group = False

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Any:
        """See `Verb`. The request of the class that the first word names."""
        word, rest = words[0].upper(), words[1:]
        if word == b"COUNT" and not rest:
            return CountDead()
        if word == b"LIST" and len(rest) < 3:
            start = 0 if not rest or rest[0] == b"-" else job_id(rest[0])
            return ListDead(start, checked_count(int64(rest[1]) if len(rest) > 1 else PAGE))
        change = {b"REDRIVE": Redrive, b"PURGE": PurgeDead}.get(word)
        if change is None or not rest:
            raise CommandError(SYNTAX)
        return change(tuple(map(job_id, rest)))


class CountDead(Dead):
    """How many dead jobs there are: an int."""

    __slots__ = ()

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"COUNT"]

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        return _look(engine, lambda stream: 0 if stream is None else stream.length)


@dataclass(frozen=True, slots=True)
class ListDead(Dead):
    """At most `count` dead jobs from the ID `start` on: [(ID, fields), ...]."""

    start: int = 0
    count: int = PAGE

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"LIST", ids.text(self.start) if self.start else b"-", b"%d" % self.count]

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        return _look(engine, lambda stream: _listed(stream, self.start, self.count))

    def reply(self, result: list[Row]) -> Reply:
        """See `Verb`."""
        return [[ids.text(job), list(row)] for job, row in result]

    def result(self, reply: Any) -> list[Row]:
        """See `Verb`."""
        return [(ids.parse(job), tuple(row)) for job, row in reply]


@dataclass(frozen=True, slots=True)
class ChangeDead(Dead):
    """A change of dead jobs, unit by unit: how many were dead, an int."""

    safe = Safe.FENCED  # a job that was changed is dead no more; only the number may be too small

    jobs: tuple[int, ...]

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        changed, left = 0, tuple(dict.fromkeys(self.jobs))
        while True:
            some, left, promise = _change(engine, left, self._planner(engine))
            changed += some
            if not left:
                return changed, promise

    def _planner(self, engine: QueueEngine) -> Callable[[Context, EntryRow], list[list[bytes]]]:
        """A function that gives the commands which go with the removal of one dead job of a unit."""
        raise NotImplementedError


class Redrive(ChangeDead):
    """Put dead jobs back into the queue, as new jobs."""

    __slots__ = ()

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"REDRIVE", *map(ids.text, self.jobs)]

    def _planner(self, engine: QueueEngine) -> Callable[[Context, EntryRow], list[list[bytes]]]:
        prepared = Prepared()

        def words(ctx: Context, row: EntryRow) -> list[list[bytes]]:
            options = JobOptions(priority=rows.priority_of(row))
            return Put(engine, tuple(rows.revived(row)), options).words(ctx, prepared)

        return words


class PurgeDead(ChangeDead):
    """Delete dead jobs."""

    __slots__ = ()

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"PURGE", *map(ids.text, self.jobs)]

    def _planner(self, engine: QueueEngine) -> Callable[[Context, EntryRow], list[list[bytes]]]:
        def words(ctx: Context, row: EntryRow) -> list[list[bytes]]:
            return [*map(Decided, free_window(ctx, engine.options, first_of_dead(row)))]

        return words


def dead_number(id: str) -> int:
    """The ID of a dead job as a number. Raises DataError."""
    return job_number(id, "a dead job")


def _listed(stream: Stream | None, start: int, count: int) -> list[Row]:
    found = () if stream is None else reading.between(stream, start, MAX, count)
    return [(job, row) for job, row in found if row is not None]


def _look(engine: QueueEngine, at: Callable[[Stream | None], Any]) -> Answer:
    """Look at the stream of dead jobs. Raises ResponseError for a key of another type."""
    key = engine.options.dead_key

    def look(state: State) -> Any:
        value = state.databases[engine.db].keys.get(key)
        if value is not None and not isinstance(value, Stream):
            raise wrong_type(key)
        return at(value)

    answer: Answer = engine.core.look(look)
    return answer


def _change(
    engine: QueueEngine,
    jobs: tuple[int, ...],
    words: Callable[[Context, EntryRow], list[list[bytes]]],
) -> tuple[int, tuple[int, ...], Promise]:
    """Remove the first of these dead jobs, as many as fit into one unit, with the commands that `words` gives for each.

    Those no longer dead are skipped. Returns how many were removed, which are left, and the promise.
    """
    key, unit, left = engine.options.dead_key, list[Row](), jobs

    def plan(ctx: Context) -> list[list[bytes]] | None:
        nonlocal unit, left
        stream = stream_at(ctx, key)
        ctx.stream(engine.options.key)  # raises for a key of another type
        rows_of = ((job, stream.get(job)) for job in jobs if stream is not None)
        there = ((job, row) for job, row in rows_of if row is not None)
        unit = next(in_units(there, lambda found: sum(map(len, found[1]))), [])
        if not unit:
            left = ()
            return None
        left = jobs[jobs.index(unit[-1][0]) + 1 :]
        planned = [command for _, row in unit for command in words(ctx, row)]
        return [*planned, [b"XDEL", key, *(ids.text(job) for job, _ in unit)]]

    _, promise = engine.unit(plan)
    return len(unit), left, promise
