"""QUEUE SCHEDULE: add or change a schedule."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import WORKS, Facts, Verb


class ChangeSchedule(Verb):
    """Add, pause, resume or remove a schedule."""

    __slots__ = ()

    name = b"SCHEDULE"
    facts = Facts(
        *(-4, WORKS, "", "0.1.0"),
        "Add, pause, resume or remove a schedule, which puts jobs again and again",
        (
            "SCHEDULE ADD <name> <queue> <value> CRON <expression> [TZ <zone>] | EVERY <ms> [CATCHUP ONE | ALL | NONE]",
            "Put a job into a queue again and again.",
            "SCHEDULE PAUSE | RESUME | REMOVE <name>",
            "Change a schedule; the reply is 0 if there is none.",
        ),
    )
    of_group = False
