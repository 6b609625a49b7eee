"""QUEUE PROGRESS: a worker says how far a job has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.own import ONE, Own
from tidelog.jobs.progress import checked, packed
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.verb import PROGRESS, WORKS, Facts, Safe
from tidelog.jobs.work.progressing import KEPT_MS, progress_key
from tidelog.jobs.work.results import first_id
from tidelog.jobs.work.settle import Held
from tidelog.store.errors import DataError


@dataclass(frozen=True, slots=True)
class Report(Ending):
    """A worker says how far a job has come: a fraction from 0 to 1, and a text."""

    name = b"PROGRESS"
    facts = Facts(
        *(-7, WORKS, "RW update", "0.2.0"),
        "Tell how far a job has come",
        (
            "PROGRESS <name> <worker> <id> <deliveries> <fraction> [TEXT <text>]",
            "The job has come so far, from 0 to 1; QUEUE JOB tells it until the job ends.",
        ),
    )
    options = {b"TEXT": ONE}
    places = 1
    end = OPEN
    safe = Safe.READ

    fraction: float
    text: str

    @property
    def needs(self) -> bytes | None:
        """See `Verb`."""
        return PROGRESS

    @classmethod
    def of(cls, fraction: Any, text: Any) -> Self:
        """The request of a worker. Raises DataError."""
        return cls(*checked(fraction, text))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = [repr(self.fraction).encode()]
        return [*words, b"TEXT", rows.unshown(self.text)] if self.text else words

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        try:
            return cls.of(float(words[0]), rows.shown(own.get(b"TEXT", [b""])[0]))
        except (ValueError, DataError) as error:
            said = str(error) if isinstance(error, DataError) else "the progress is no number"
            raise CommandError(b"ERR " + said.encode()) from None

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        if held.find(ctx) is None:
            return None
        key = progress_key(held.options, first_id(held.job, held.row))
        held.known.progress[held.job] = key
        value, until = packed(self.fraction, self.text, ctx.now), ctx.now + KEPT_MS
        return [[b"SET", key, value, b"PXAT", b"%d" % until]]
