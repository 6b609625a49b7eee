"""QUEUE FORGET: free a dedup ID."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from tidelog.engine.api import Context
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import named
from tidelog.jobs.own import Own
from tidelog.jobs.verbs.verb import DEDUP, WORKS, Change, Facts
from tidelog.jobs.work.freeing import forget


@dataclass(frozen=True, slots=True)
class Forget(Change):
    """Free a dedup ID: 1; 0 if it was free."""

    name = b"FORGET"
    facts = Facts(
        *(-4, WORKS, "RW update", "0.2.0", "Free a dedup ID"),
        ("FORGET <name> <id>", "Free a dedup ID; the reply is 0 if it was free."),
    )
    places = 1

    dedup_id: bytes

    @property
    def needs(self) -> bytes:
        """See `Verb`."""
        return DEDUP

    @classmethod
    def of(cls, dedup_id: str) -> Self:
        """The request of a caller who names an ID. Raises DataError."""
        return cls(named("dedup_id", dedup_id))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [self.dedup_id]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[0])

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_forget, engine, dedup_id=self.dedup_id)


def _log_forget(engine: QueueEngine, ctx: Context, dedup_id: bytes) -> int:
    """[lock] Log that a dedup ID is free. Returns 1, or 0 if it was free."""
    ctx.stream(engine.options.key)  # raises for a key of another type
    found = forget(ctx, engine.options, dedup_id)
    ctx.effects += found
    return int(bool(found))
