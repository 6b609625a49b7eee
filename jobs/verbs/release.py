"""QUEUE RELEASE: a worker gives a job back."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.engine.api import Context
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.verb import WORKS, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.settle import Held


@dataclass(frozen=True, slots=True)
class Release(Ending):
    """A worker gives a job back as if it had not been delivered.

    more    commands that belong into the same unit
    """

    name = b"RELEASE"
    counted = False
    facts = Facts(
        *(-6, WORKS, "RW update", "0.1.0"),
        "Give a job back as if it had not been delivered",
        (
            "RELEASE <name> <worker> <id> <deliveries>",
            "Give the job back as if it had not been delivered.",
        ),
    )

    more: tuple[list[bytes], ...] = ()

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        words = settle.release(held, ctx)
        return None if words is None else [*words, *self.more]
