"""QUEUE DONEAND: a job is done, and others are put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from tidelog.engine.api import Context
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import int64
from tidelog.jobs.dedup import REPLACE, needed_elsewhere
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import depth_of
from tidelog.jobs.own import Own
from tidelog.jobs.putting import NewJob, Prepared, Put
from tidelog.jobs.verbs.ending import ACKED, Ending
from tidelog.jobs.verbs.verb import PUTS, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.settle import Held
from tidelog.store.errors import DataError, QueueFull

N = TypeVar("N", bound=NewJob)


@dataclass(frozen=True, slots=True)
class AckAnd(Ending):
    """A job is done and others are put, as one unit: as a client says it.

    puts    what QUEUE PUT takes for each: the name of its queue, its value, options of the job and of its queue
    lacks   the capability that one of them needs
    """

    name = b"DONEAND"
    end = ACKED

    puts: list[list[bytes]]
    lacks: bytes | None = None

    @property
    def needs(self) -> bytes | None:
        """See `Verb`."""
        return self.lacks

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = [b"%d" % len(self.puts)]
        for put in self.puts:
            words += (b"%d" % len(put), *put)
        return words

    @classmethod
    def placed(cls, words: list[bytes]) -> int:
        """See `Verb`."""
        return 1 + sum(1 + len(put) for put in cls.parse(words, Own()).puts)

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`. The number of puts, and before the words of each how many these are. Raises CommandError."""
        puts: list[list[bytes]] = []
        at = 1
        for _ in range(int64(words[0])):
            size = int64(words[at]) if at < len(words) else 0
            put = words[at + 1 : at + 1 + size]
            if not 2 <= size == len(put):
                raise CommandError(SYNTAX)
            puts.append(put)
            at += 1 + size
        return cls(puts)


@dataclass(frozen=True, slots=True)
class DoneAnd(Ending):
    """A job is done and others are put, as one unit.

    engine    that of the job's queue
    """

    name = AckAnd.name
    facts = Facts(
        *(-7, PUTS, "RW delete", "0.1.0"),
        "Mark a job as done and put others, as one unit",
        (
            "DONEAND <name> <worker> <id> <deliveries> <count> [<words> <name> <value> ...] ...",
            "The job is done, and others are put in the same unit.",
        ),
    )
    end = ACKED

    engine: QueueEngine
    puts: tuple[Put, ...]

    @classmethod
    def of(cls, engine: QueueEngine, puts: Sequence[NewJob]) -> Self:
        """The request of a worker. Raises DataError."""
        mine = some_of(Put, puts)
        for put in mine:
            if put.engine.core is not engine.core:
                raise DataError(
                    f"done_and works within one store; queue {put.engine.options.name!r} is in another store"
                )
        if any(put.engine.db != engine.db for put in mine):
            raise DataError("done_and puts only into queues of the job's own database")
        return cls(engine, mine)

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`. Raises QueueFull."""
        return settle.done_and(held, ctx, partial(self._adds, held))

    def _adds(self, held: Held, ctx: Context) -> list[list[bytes]]:
        """The commands that put the other jobs."""
        lane = held.options
        stream = ctx.stream(lane.key)
        ending: tuple[bytes, int] | None = lane.root, held.job
        if stream is None or needed_elsewhere(stream, lane.group_key, held.job):
            ending = None
        some = _last_ones(self.puts)
        _check_room(ctx, some, self.engine, ending)
        prepared = Prepared(ending)
        return [words for put in some for words in put.words(ctx, prepared)]


def some_of(kind: type[N], puts: Sequence[NewJob]) -> tuple[N, ...]:
    """The jobs that `done_and` is to put, all made by a queue of the same kind of store. Raises DataError."""
    mine: list[N] = []
    for put in puts:
        if not isinstance(put, kind):
            raise DataError(
                f"done_and takes puts made by queue.new(...), not {type(put).__name__!r}"
            )
        mine.append(put)
    return tuple(mine)


def _last_ones(puts: Sequence[Put]) -> Sequence[Put]:
    """The puts without those that a later one replaces."""
    if all(put.options.mode != REPLACE for put in puts):
        return puts
    places = [(put.engine.options.key, put.dedup_id) for put in puts]
    replacing = [place if put.options.mode == REPLACE else None for put, place in zip(puts, places)]
    return [put for at, put in enumerate(puts) if places[at] not in replacing[at + 1 :]]


def _check_room(
    ctx: Context, puts: Sequence[Put], own: QueueEngine, ending: tuple[bytes, int] | None
) -> None:
    """Raise QueueFull if a bounded queue has no room for `puts`. The job itself makes room in its own queue."""
    wanted: dict[bytes, list[Put]] = {}
    told: set[tuple[bytes, bytes]] = set()
    for put in puts:
        key, dedup_id = put.engine.options.key, put.dedup_id
        if (
            put.due is not None
            or put.namesake(ctx, ending) is not None
            or put.makes_room(ctx, ending)
            or (dedup_id is not None and (key, dedup_id) in told)
        ):
            continue
        if dedup_id is not None:
            told.add((key, dedup_id))
        wanted.setdefault(key, []).append(put)
    for key, many in wanted.items():
        engine = min((put.engine for put in many), key=_bound)
        most = engine.options.max_depth
        if most is None:
            continue
        there = depth_of(ctx.state, engine.db, engine.options, engine.used(ctx))
        if key == own.options.key and engine.options.group == own.options.group:
            there -= 1
        if there + len(many) > most:
            raise QueueFull(
                f"queue {engine.options.name!r} has no room for {len(many)} more jobs (max_depth {most}); "
                "you still hold the job"
            )


def _bound(engine: QueueEngine) -> float:
    most = engine.options.max_depth
    return float("inf") if most is None else most
