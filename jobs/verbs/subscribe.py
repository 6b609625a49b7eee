"""QUEUE SUBSCRIBE: create the group of a queue."""

from __future__ import annotations

from typing import Any

from tidelog.engine.reply import OK, Reply
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.verb import WORKS, Facts, Verb
from tidelog.store.commit.core import Answer


class Subscribe(Verb):
    """Create the group in all lanes that lack it. A client may repeat it: then nothing is missing."""

    __slots__ = ()

    name = b"SUBSCRIBE"
    facts = Facts(
        *(-3, WORKS, "RW insert", "0.1.0", "Create the group of a queue"),
        ("SUBSCRIBE <name>", "Create the group, so that it gets every job from now on."),
    )

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        return None, engine.subscribe()

    def reply(self, result: Any) -> Reply:
        """See `Verb`."""
        return OK
