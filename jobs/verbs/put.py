"""QUEUE PUT: put a job."""

from __future__ import annotations

from tidelog.jobs.verbs.own import JOB, ONE, TWO
from tidelog.jobs.verbs.verb import PUTS, Facts, Verb


class PutJob(Verb):
    """Put one job: its ID, or that of the job that has its dedup ID."""

    __slots__ = ()

    name = b"PUT"
    facts = Facts(
        *(-4, PUTS, "RW insert", "0.1.0"),
        "Put a job",
        (
            "PUT <name> <value> [DEDUP <id> [MODE WINDOW | UNTIL-DONE | REPLACE]] [HEADERS <count> <name> <text> ...]",
            "[DELAY <ms> | AT <unix-ms>] [TTL <ms>] [PRIORITY <0 to 9>] [KEY <text>] [BLOCK <ms>]",
            "Put a job; the reply is its ID, or that of the job that has the dedup ID.",
        ),
    )
    options = {**JOB, b"BLOCK": ONE, b"ONCE": TWO}
