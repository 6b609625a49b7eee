"""QUEUE SCHEDULES: the schedules of a database."""

from __future__ import annotations

from typing import Any

from tidelog.engine.api import State
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.rules import SCHEDULES
from tidelog.jobs.scheduling import Schedule, of_pairs, pairs, shown, stored
from tidelog.jobs.verbs.verb import LOOKS, Facts, OfDatabase
from tidelog.store.commit.core import Answer


class ListSchedules(OfDatabase):
    """The schedules of the database, by name: [Schedule, ...]."""

    __slots__ = ()

    name = b"SCHEDULES"
    facts = Facts(
        *(2, LOOKS, "", "0.1.0", "Show the schedules"),
        ("SCHEDULES", "The schedules of the database."),
    )

    reads = True

    @classmethod
    def queue_of(cls, found: Schedule) -> str:
        """See `OfDatabase`."""
        return found.queue

    def decide(self, engine: InDatabase) -> Answer:
        """See `Verb`."""
        times = engine.core.clocks()

        def at(state: State) -> list[Schedule]:
            found = stored(state.databases[engine.db].keys.get(SCHEDULES))
            return sorted((shown(each, times) for each in found), key=lambda each: each.name)

        answer: Answer = engine.core.look(at)
        return answer

    def reply(self, result: list[Schedule]) -> Reply:
        """See `Verb`."""
        return list(map(pairs, result))

    def result(self, reply: Any) -> list[Schedule]:
        """See `Verb`."""
        return list(map(of_pairs, reply))
