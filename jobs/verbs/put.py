"""QUEUE PUT: put a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tidelog.jobs import rows
from tidelog.jobs.dedup import WINDOW
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import JOB, ONE_USAGE, WHEN_USAGE, JobOptions, PutOptions, job_options
from tidelog.jobs.options import Options
from tidelog.jobs.own import ONE, TWO, Own
from tidelog.jobs.putting import Put
from tidelog.jobs.units import checked_payload
from tidelog.jobs.verbs.verb import DEDUP, LIMIT, PUTS, RETRY, Facts, Safe, Verb, all_needs


def needs_of_job(job: JobOptions) -> bytes | None:
    """The needs of a put with these options; see `Verb.needs`."""
    dedup = None if job.mode == WINDOW else DEDUP
    if job.limit_ms is not None:
        dedup = all_needs(dedup, LIMIT)
    return dedup if job.retry is None else all_needs(dedup, RETRY)


@dataclass(frozen=True, slots=True)
class PutJob(Verb):
    """Put one job: its ID, or that of the job that has its dedup ID. It may wait for room: see `Attempt`."""

    name = b"PUT"
    facts = Facts(
        *(-4, PUTS, "RW insert", "0.1.0"),
        "Put a job",
        (
            f"PUT <name> <value> {ONE_USAGE}",
            f"{WHEN_USAGE} [BLOCK <ms>]",
            "Put a job; the reply is its ID, or that of the job that has the dedup ID.",
        ),
    )
    places = 1
    options = {**JOB, b"BLOCK": ONE, b"ONCE": TWO}
    safe = Safe.ONCE

    value: bytes
    job: JobOptions

    @classmethod
    def of(cls, options: Options, value: Any, given: PutOptions) -> Self:
        """The request of a caller. Raises DataError, EncodeError, and TypeError for an unknown option."""
        job = job_options(given)
        return cls(rows.encode_value(options, value), job)

    @property
    def needs(self) -> bytes | None:
        """See `Verb`."""
        return needs_of_job(self.job)

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [self.value, *self.job.words()]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[0], JobOptions.parse(own))

    def put(self, engine: QueueEngine) -> Put:
        """The job for a queue. Raises PayloadTooLarge, and DataError for a time too far away."""
        checked_payload(engine.options.name, self.value)
        return Put(engine, self.job.row(self.value), self.job, engine.due(self.job))
