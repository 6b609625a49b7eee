"""QUEUE SCHEDULES: the schedules of a database."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import LOOKS, Facts, Verb


class ListSchedules(Verb):
    """The schedules of the database."""

    __slots__ = ()

    name = b"SCHEDULES"
    facts = Facts(
        *(2, LOOKS, "", "0.1.0"),
        "Show the schedules",
        (
            "SCHEDULES",
            "The schedules of the database.",
        ),
    )
    of_group = False
