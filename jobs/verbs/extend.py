"""QUEUE EXTEND: a worker keeps a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidelog.engine.api import Context
from tidelog.engine.integers import int64
from tidelog.jobs.own import Own, ms_word
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.verb import WORKS, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.known import Delivery
from tidelog.jobs.work.settle import Held
from tidelog.store.durations import Duration, seconds


@dataclass(frozen=True, slots=True)
class Extend(Ending):
    """A worker keeps a job for `length` seconds, whatever becomes of its connection. A longer request of it stays."""

    name = b"EXTEND"
    facts = Facts(
        *(-7, WORKS, "RW update", "0.1.0"),
        "Keep a job even if the connection ends",
        (
            "EXTEND <name> <worker> <id> <deliveries> <ms>",
            "Keep the job for so long, even if the connection ends.",
        ),
    )
    places = 1
    end = OPEN

    length: float

    @classmethod
    def of(cls, length: Duration) -> Self:
        """The request of a worker. Raises DataError."""
        return cls(seconds("seconds", length))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [ms_word(self.length)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(seconds("seconds", int64(words[0]) / 1000))

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        return settle.extend(held, ctx, self.length)

    def kept(self, delivery: Delivery) -> None:
        """See `Ending`."""
        if delivery.until is not None:
            delivery.until = max(delivery.until, delivery.known.core.monotonic() + self.length)
