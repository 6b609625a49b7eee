"""QUEUE FAIL: a worker gives a job up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidelog.engine.api import Context
from tidelog.jobs import rows
from tidelog.jobs.own import ONE, Own
from tidelog.jobs.verbs.ending import Ending, evidence_in, evidence_words
from tidelog.jobs.verbs.verb import WORKS, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.settle import Held


@dataclass(frozen=True, slots=True)
class Fail(Ending):
    """A worker gives a job up: it becomes a dead job at once."""

    name = b"FAIL"
    facts = Facts(
        *(-7, WORKS, "RW delete", "0.1.0"),
        "Make a job a dead job",
        (
            "FAIL <name> <worker> <id> <deliveries> <error> [TRACE <text>]",
            "Give the job up; it becomes a dead job.",
        ),
    )
    options = {b"TRACE": ONE}
    places = 1

    error: str
    trace: str

    @classmethod
    def of(cls, reason: str | BaseException) -> Self:
        """The request of a worker, with the evidence."""
        return cls(*rows.evidence(reason))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return evidence_words(self.error, self.trace)

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(*evidence_in(words, own))

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        return settle.fail(held, ctx, self.error, self.trace)
