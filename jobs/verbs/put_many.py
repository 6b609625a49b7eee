"""QUEUE PUTMANY: put several jobs as one unit."""

from __future__ import annotations

from tidelog.jobs.job_options import WHEN, WHEN_USAGE
from tidelog.jobs.own import ONE, TWO
from tidelog.jobs.verbs.verb import PUTS, Facts, Verb


class PutMany(Verb):
    """Put several jobs as one unit: how many."""

    __slots__ = ()

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
