"""QUEUE CANCEL: a job is no longer to be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import job_number, named
from tidelog.jobs.own import ONE, Own, job_id
from tidelog.jobs.verbs.verb import CANCEL, WORKS, Change, Facts, OneJob
from tidelog.jobs.work.cancelling import Cancelling
from tidelog.store.commit.core import Answer


@dataclass(frozen=True, slots=True)
class Cancel(OneJob, Change):
    """Cancel a job that is not done: 1; 0 if it is done, dead or cancelled.

    only    the one group for which it is cancelled; None = all
    """

    name = b"CANCEL"
    facts = Facts(
        *(-4, WORKS, "RW delete", "0.1.0", "Cancel a job"),
        (
            "CANCEL <name> <id> [ONLY <group>]",
            "Cancel a job that is not done, also one that runs, for all groups or for one.",
        ),
    )
    options = {b"ONLY": ONE}

    only: bytes | None = None

    @property
    def needs(self) -> bytes | None:
        """See `Verb`."""
        return None if self.only is None else CANCEL

    @classmethod
    def asked(cls, job: str, group: str | None) -> Self:
        """The request of a caller. Raises DataError."""
        return cls(job_number(job), None if group is None else named("group", group))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        # not super(), which a class with slots does not find
        words = OneJob.words(self)
        return words if self.only is None else [*words, b"ONLY", self.only]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(job_id(words[0]), own[b"ONLY"][0] if b"ONLY" in own else None)

    def decision(self, engine: QueueEngine) -> Cancelling:
        """See `Change`."""
        found = Cancelling(engine, self.job, self.only)
        found.find()
        return found

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        decision = self.decision(engine)
        return decision.asked(lambda: engine.decided(decision))
