"""QUEUE CONFIRM: a handler begins with jobs."""

from __future__ import annotations

from tidelog.jobs.verbs.named import Named
from tidelog.jobs.verbs.verb import WORKS, Facts


class Confirm(Named):
    """A handler begins with the jobs of a TAKE: whether the worker holds the job."""

    __slots__ = ()

    name = b"CONFIRM"
    facts = Facts(
        *(-6, WORKS, "RW update", "0.2.0"),
        "Tell that a handler begins with the jobs of a TAKE",
        (
            "CONFIRM <name> <worker> <id> <deliveries>",
            "A handler begins with the jobs of a TAKE that had CONFIRM; until then they go back if the "
            "connection ends.",
        ),
    )

    @classmethod
    def placed(cls, words: list[bytes]) -> int:
        """See `Verb`. One job stands for all of its TAKE."""
        return 3
