"""QUEUE UNBLOCK: end the wait of another connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidelog.jobs.own import Own
from tidelog.jobs.verbs.verb import WORKS, Facts, Verb


@dataclass(frozen=True, slots=True)
class Unblock(Verb):
    """End a TAKE of another connection that waits with this token: whether there was one."""

    name = b"UNBLOCK"
    facts = Facts(
        *(-4, WORKS, "RW update", "0.2.0"),
        "End a TAKE of another connection that waits",
        (
            "UNBLOCK <name> <token>",
            "End the TAKE of another connection that waits with this token.",
        ),
    )
    places = 1

    token: bytes

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [self.token]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[0])
