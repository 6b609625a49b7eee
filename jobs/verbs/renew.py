"""QUEUE RENEW: a worker lives."""

from __future__ import annotations

from tidelog.jobs.own import ONE
from tidelog.jobs.verbs.verb import WORKS, Facts, Verb


class Renew(Verb):
    """Renew the leases of jobs: the IDs of those that the worker still holds."""

    __slots__ = ()

    name = b"RENEW"
    facts = Facts(
        *(-6, WORKS, "RW update", "0.1.0"),
        "Tell that a worker lives",
        (
            "RENEW <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [HEARTBEAT <ms>]",
            "The worker lives; the reply lists the jobs that it still holds.",
        ),
    )
    options = {b"HEARTBEAT": ONE}
