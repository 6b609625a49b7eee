"""QUEUE PUTMANY: put several jobs as one unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.jobs.job_options import WHEN, WHEN_USAGE, JobOptions
from tidelog.jobs.own import ONE, TWO, Own
from tidelog.jobs.verbs.put import needs_of_job
from tidelog.jobs.verbs.verb import PUTS, Facts, Safe, Verb


@dataclass(frozen=True, slots=True)
class PutMany(Verb):
    """Put several jobs as one unit: how many. They are fewer than given if a bounded queue had no room for all, or if
    they are more than a unit holds. It may wait for room: see `AttemptMany`.
    """

    name = b"PUTMANY"
    facts = Facts(
        *(-5, PUTS, "RW insert", "0.1.0"),
        "Put several jobs as one unit",
        (
            "PUTMANY <name> <count> <value> [<value> ...]",
            f"{WHEN_USAGE} [BLOCK <ms>]",
            "Put several jobs as one unit; the reply is their number.",
        ),
    )
    options = {**WHEN, b"BLOCK": ONE, b"ONCE": TWO}
    safe = Safe.ONCE

    values: list[bytes]
    job: JobOptions

    @classmethod
    def placed(cls, words: list[bytes]) -> int:
        """See `Verb`. The number of values, and these."""
        count = int64(words[0])
        if not 1 <= count < len(words):
            raise CommandError(
                b"ERR the number of values must be at least 1 and not above those given"
            )
        return 1 + count

    @property
    def needs(self) -> bytes | None:
        """See `Verb`."""
        return needs_of_job(self.job)

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"%d" % len(self.values), *self.values, *self.job.words()]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[1:], JobOptions.parse(own))
