"""QUEUE PEEK: the next jobs, which are not delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tidelog.engine import ids
from tidelog.engine.api import State, reading
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.due import due_in
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import HIGHEST_FIRST, Lane, lanes_in
from tidelog.jobs.options import positive
from tidelog.jobs.own import FLAG, ONE, Own
from tidelog.jobs.verbs.verb import LOOKS, Facts, Verb
from tidelog.jobs.work.later import later_of
from tidelog.store.commit.core import Answer


@dataclass(frozen=True, slots=True)
class Peek(Verb):
    """The next jobs that are due, or the delayed ones that are not: [(number, row, due in unix ms or None), ...]."""

    name = b"PEEK"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.1.0", "Show the next jobs without delivering them"),
        (
            "PEEK <name> [COUNT <n>] [SCHEDULED]",
            "The next jobs, or the delayed jobs that are not due yet, with their times; they are not delivered.",
        ),
    )
    options = {b"COUNT": ONE, b"SCHEDULED": FLAG}

    count: int = 10
    scheduled: bool = False

    def __post_init__(self) -> None:
        positive("count", self.count)

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"COUNT", b"%d" % self.count, b"SCHEDULED"][: 2 + self.scheduled]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(own.count(10), b"SCHEDULED" in own)

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        number, scheduled = self.count, self.scheduled
        options, known, now = engine.options, engine.known, engine.store_ms()

        def at(state: State) -> list[Any]:
            later = later_of(state, engine.db, options)
            arrived: list[Any] = []
            if later is not None:
                known.later.watch_clock(engine.core, now)
                lead = known.later.lead
                for due_ms, job in known.later.listed(later[1]):
                    if (due_ms > now) is scheduled and (row := later[0].get(job)) is not None:
                        # shown by the wall clock
                        arrived.append((job, row, due_ms - lead if scheduled else None))
                        if len(arrived) == number:
                            break
                    elif due_ms > now and not scheduled and not known.later.disordered:
                        break
            if scheduled:
                return arrived
            found: list[Any] = []
            lanes = {lane.options.priority: lane for lane in lanes_in(state, engine.db, options)}
            for priority in (*HIGHEST_FIRST, 0):
                if priority in lanes:
                    found += _next_in(engine, state, lanes[priority], number - len(found))
                found += [each for each in arrived if rows.priority_of(each[1]) == priority]
                if len(found) >= number:
                    break
            return found[:number]

        answer: Answer = engine.core.look(at)
        return answer

    def reply(self, result: list[Any]) -> Reply:
        """See `Verb`."""
        shown = 2 + self.scheduled
        return [[ids.text(job), list(row), due][:shown] for job, row, due in result if row]

    def result(self, reply: Any) -> list[Any]:
        """See `Verb`."""
        return [(ids.parse(job), tuple(row), *(due or [None])) for job, row, *due in reply]


def _next_in(engine: QueueEngine, state: State, lane: Lane, number: int) -> list[Any]:
    """[lock] The next jobs of a lane, as `peek` gives them."""
    stream, group = lane.stream, lane.group
    due = due_in(engine, state, lane)[:number]
    found: list[Any] = [(job, row, None) for job in due if (row := stream.get(job)) is not None]
    if len(found) < number:
        after = 0 if group is None else group.last_id
        fresh = reading.between(stream, after + 1, MAX, number - len(found))
        found += [(job, row, None) for job, row in fresh]
    return found
