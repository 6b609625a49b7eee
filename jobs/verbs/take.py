"""QUEUE TAKE: a worker gets jobs, or waits for them."""

from __future__ import annotations

from tidelog.jobs.own import FLAG, ONE
from tidelog.jobs.verbs.verb import Facts, Verb


class Take(Verb):
    """Get jobs as a worker."""

    __slots__ = ()

    name = b"TAKE"
    facts = Facts(
        *(-4, "write blocking noscript no_multi", "RW access update", "0.1.0"),
        "Get jobs as a worker; may block",
        (
            "TAKE <name> <worker> [COUNT <n>] [BLOCK <ms>] [HEARTBEAT <ms>] [LIMIT <ms>] [HISTORY]",
            "[CONFIRM <token>]",
            "Get jobs, each as ID, number of deliveries, and fields.",
        ),
    )
    options = {
        **dict.fromkeys((b"COUNT", b"BLOCK", b"HEARTBEAT", b"LIMIT", b"CONFIRM"), ONE),
        b"HISTORY": FLAG,
    }
