"""QUEUE UNBLOCK: end the wait of another connection."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import WORKS, Facts, Verb


class Unblock(Verb):
    """End a TAKE of another connection that waits: whether there was one."""

    __slots__ = ()

    name = b"UNBLOCK"
    facts = Facts(
        *(-4, WORKS, "RW update", "0.2.0"),
        "End a TAKE of another connection that waits",
        (
            "UNBLOCK <name> <token>",
            "End the TAKE of another connection that waits with this token.",
        ),
    )
