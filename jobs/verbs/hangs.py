"""QUEUE HANGS: a run of workers tells how many of its handlers hang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from tidelog.engine.api import State
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.hangs import Counts
from tidelog.jobs.own import Own
from tidelog.jobs.verbs.verb import HANGS, WORKS, Facts, Verb
from tidelog.store.commit.core import Answer

RUN_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class TellHangs(Verb):
    """A run tells how many of its handlers hang, and how many processes it has killed since it began.

    run    a name that no other run has: workers of several may have the same name
    """

    name = b"HANGS"
    facts = Facts(
        *(-7, WORKS, "RW update", "0.2.0", "Tell how many handlers of a worker hang"),
        (
            "HANGS <name> <worker> <run> <hanging> <killed>",
            "The number of handlers of the worker that hang, and of its processes that were killed for that; it is "
            "forgotten after 30 seconds, unless it is told again.",
        ),
    )
    places = 4
    needs = HANGS

    worker: bytes
    run: bytes
    counts: Counts

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [self.worker, self.run, *(b"%d" % count for count in self.counts)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        counts = Counts(int64(words[2]), int64(words[3]))
        if min(counts) < 0 or len(words[1]) > RUN_BYTES_MAX:
            raise CommandError(b"ERR a count below 0, or a name of a run that is too long")
        return cls(words[0], words[1], counts)

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        group = engine.db, engine.options.key, engine.options.group_key

        def tell(state: State) -> None:
            mono = engine.core.monotonic()
            engine.leases.hangs.tell(group, self.run, self.worker, self.counts, mono)

        answer: Answer = engine.core.look(tell)
        return answer

    def reply(self, result: None) -> Reply:
        """See `Verb`."""
        return OK

    def result(self, reply: Any) -> None:
        """See `Verb`."""
