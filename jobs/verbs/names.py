"""QUEUE LIST: the queues of a database."""

from __future__ import annotations

from tidelog.jobs.verbs.verb import LOOKS, Facts, Verb


class ListQueues(Verb):
    """Names and groups of all queues."""

    __slots__ = ()

    name = b"LIST"
    facts = Facts(
        *(2, LOOKS, "", "0.1.0"),
        "List the queues",
        (
            "LIST",
            "Names and groups of all queues.",
        ),
    )
    of_group = False
