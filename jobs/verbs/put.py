"""QUEUE PUT: put a job."""

from __future__ import annotations

from tidelog.jobs.job_options import JOB, ONE_USAGE, WHEN_USAGE
from tidelog.jobs.own import ONE, TWO
from tidelog.jobs.verbs.verb import PUTS, Facts, Verb


class PutJob(Verb):
    """Put one job: its ID, or that of the job that has its dedup ID."""

    __slots__ = ()

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
    options = {**JOB, b"BLOCK": ONE, b"ONCE": TWO}
