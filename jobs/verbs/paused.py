"""QUEUE PAUSED: when a queue was paused."""

from __future__ import annotations

from tidelog.engine.api import State
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.verb import LOOKS, PAUSE, Facts, Verb
from tidelog.jobs.work.pausing import paused_since
from tidelog.store.commit.core import Answer


class Paused(Verb):
    """When the queue was paused, unix ms; None if it is not paused."""

    __slots__ = ()

    name = b"PAUSED"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.2.0", "Tell when the queue was paused"),
        ("PAUSED <name>", "When it was paused, unix ms; nil if it is not paused."),
    )
    needs = PAUSE

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        options = engine.options

        def at(state: State) -> int | None:
            return paused_since(state.databases[engine.db].keys, options)

        answer: Answer = engine.core.look(at)
        return answer
