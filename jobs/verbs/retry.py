"""QUEUE RETRY: a delivery failed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import random
from typing import Self

from tidelog.engine.api import Context, EntryRow
from tidelog.jobs import rows
from tidelog.jobs.options import Options
from tidelog.jobs.own import ONE, Own
from tidelog.jobs.verbs.ending import Ending, evidence_in, evidence_words
from tidelog.jobs.verbs.verb import WORKS, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.settle import Held
from tidelog.store.durations import Duration, seconds


@dataclass(frozen=True, slots=True)
class Retry(Ending):
    """A delivery failed. The job is tried again after a pause, or is dead after the last delivery.

    pause    seconds; None = one that grows with each delivery
    """

    name = b"RETRY"
    facts = Facts(
        *(-7, WORKS, "RW update", "0.1.0"),
        "Tell that a delivery failed",
        (
            "RETRY <name> <worker> <id> <deliveries> <error> [DELAY <ms>] [TRACE <text>]",
            "The delivery failed; the job is tried again later.",
        ),
    )
    options = {b"DELAY": ONE, b"TRACE": ONE}
    places = 1

    error: str
    trace: str
    pause: float | None = None

    @classmethod
    def of(cls, reason: str | BaseException, delay: Duration | None) -> Self:
        """The request of a worker, with the evidence. Raises DataError."""
        pause = None if delay is None else seconds("delay", delay, zero=True)
        return cls(*rows.evidence(reason), pause)

    def timed(self, row: EntryRow, options: Options, deliveries: int) -> Self | None:
        """The request with the pause that the job will have; None if it will be dead."""
        pause = options.pause(rows.retry_of(row), deliveries, self.pause, random())
        return None if pause is None else replace(self, pause=round(pause, 3))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = evidence_words(self.error, self.trace)
        if self.pause is None:
            return words
        return [*words, b"DELAY", b"%d" % round(self.pause * 1000)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        delay = own.number(b"DELAY")
        return cls(*evidence_in(words, own), None if delay is None else delay / 1000)

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        return settle.nack(held, ctx, self.error, self.trace, self.pause, random())
