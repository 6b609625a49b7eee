"""QUEUE LEN: the number of jobs that are not done."""

from __future__ import annotations

from tidelog.engine.api import State
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import totals
from tidelog.jobs.verbs.verb import LOOKS, Facts, Verb
from tidelog.jobs.work.later import later_of
from tidelog.store.commit.core import Answer


class Length(Verb):
    """How many jobs are not done, without the delayed ones that are not due yet: an int."""

    __slots__ = ()

    name = b"LEN"
    facts = Facts(
        *(-3, LOOKS, "RO", "0.1.0", "Count the jobs that are not done"),
        ("LEN <name>", "The number of jobs that are not done."),
    )

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        core, options, now = engine.core, engine.options, engine.store_ms()

        def at(state: State) -> int:
            later = later_of(state, engine.db, options)
            arrived = engine.known.later.count_due(core, later, now)
            return totals(state, engine.db, options)[1] + arrived

        answer: Answer = core.look(at)
        return answer
