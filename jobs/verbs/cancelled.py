"""QUEUE CANCELLED: which jobs were cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.engine import ids
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.named import Named
from tidelog.jobs.verbs.verb import CANCEL, LOOKS, Facts
from tidelog.jobs.work.cancelling import cancelled_among
from tidelog.store.commit.core import Answer


@dataclass(slots=True)
class AskCancelled(Named):
    """The IDs of those jobs that were cancelled for the group, of jobs that a worker had and holds no more."""

    name = b"CANCELLED"
    facts = Facts(
        *(-6, LOOKS, "RO access", "0.2.0", "Tell which jobs were cancelled"),
        (
            "CANCELLED <name> <worker> <id> <deliveries> [<id> <deliveries> ...]",
            "Which of these jobs were cancelled, if the worker does not hold them any more.",
        ),
    )
    needs = CANCEL

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        options, db = engine.options, engine.db
        jobs = [job for job, _ in self.fences]
        answer: Answer = engine.core.look(lambda state: cancelled_among(state, db, options, jobs))
        return answer

    def reply(self, result: list[int]) -> Reply:
        """See `Verb`."""
        return list(map(ids.text, result))

    def result(self, reply: Any) -> list[int]:
        """See `Verb`."""
        return list(map(ids.parse, reply))
