"""QUEUE DONEAND: a job is done, and others are put."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import PUTS, Facts, Verb


class DoneAnd(Verb):
    """A job is done and others are put, as one unit: whether the worker still held it."""

    __slots__ = ()

    name = b"DONEAND"
    facts = Facts(
        *(-7, PUTS, "RW delete", "0.1.0"),
        "Mark a job as done and put others, as one unit",
        (
            "DONEAND <name> <worker> <id> <deliveries> <count> [<words> <name> <value> ...] ...",
            "The job is done, and others are put in the same unit.",
        ),
    )
