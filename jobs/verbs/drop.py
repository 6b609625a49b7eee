"""QUEUE DROP: a living worker dropped jobs."""

from __future__ import annotations

from tidelog.jobs.verbs.named import Named
from tidelog.jobs.verbs.verb import WORKS, Facts


class Drop(Named):
    """Let jobs wait for the end of their lease: how many the worker held."""

    __slots__ = ()

    name = b"DROP"
    facts = Facts(
        *(-6, WORKS, "RW update", "0.1.0"),
        "Tell that a living worker dropped jobs",
        (
            "DROP <name> <worker> <id> <deliveries> [<id> <deliveries> ...]",
            "The worker dropped the jobs; they come back when their lease is over.",
        ),
    )
