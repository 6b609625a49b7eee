"""QUEUE LIST: the queues of a database."""

from __future__ import annotations

from tidelog.engine.reply import Reply
from tidelog.jobs.engine import InDatabase
from tidelog.jobs.names import queue_names
from tidelog.jobs.verbs.verb import LOOKS, Facts, OfDatabase
from tidelog.store.commit.core import Answer


class ListQueues(OfDatabase):
    """Names and groups of all queues: [(name, group), ...]."""

    __slots__ = ()

    name = b"LIST"
    facts = Facts(
        *(2, LOOKS, "", "0.1.0", "List the queues"),
        ("LIST", "Names and groups of all queues."),
    )

    @classmethod
    def queue_of(cls, found: tuple[str, str]) -> str:
        """See `OfDatabase`."""
        return found[0]

    def decide(self, engine: InDatabase) -> Answer:
        """See `Verb`."""
        return queue_names(engine.core, engine.db)

    def reply(self, result: list[tuple[str, str]]) -> Reply:
        """See `Verb`."""
        return [[name.encode(), group.encode()] for name, group in result]
