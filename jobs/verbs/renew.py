"""QUEUE RENEW: a worker lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tidelog.engine import ids
from tidelog.engine.api import Context
from tidelog.engine.reply import Reply
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.own import ONE, Own, ms_word
from tidelog.jobs.streams import holds
from tidelog.jobs.verbs.named import Fences, Named, by_lane, fences_in
from tidelog.jobs.verbs.verb import WORKS, Facts
from tidelog.jobs.work.known import Known
from tidelog.jobs.work.look import was_lost


@dataclass(slots=True)
class Renew(Named):
    """Renew the leases of jobs: the IDs of those that the worker still holds.

    beat    seconds after which they are taken back unless it renews them again; None = as before
    """

    name = b"RENEW"
    facts = Facts(
        *(-6, WORKS, "RW update", "0.1.0"),
        "Tell that a worker lives",
        (
            "RENEW <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [HEARTBEAT <ms>]",
            "The worker lives; the reply lists the jobs that it still holds.",
        ),
    )
    options = {b"HEARTBEAT": ONE}

    beat: float | None = None

    def words(self) -> list[bytes]:
        """See `Verb`."""
        # not super(), which a class with slots does not find
        words = Named.words(self)
        return words if self.beat is None else [*words, b"HEARTBEAT", ms_word(self.beat)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[0], fences_in(words), own.milliseconds(b"HEARTBEAT"))

    def reply(self, result: list[int]) -> Reply:
        """See `Verb`."""
        return list(map(ids.text, result))

    def result(self, reply: Any) -> list[int]:
        """See `Verb`."""
        return list(map(ids.parse, reply))


def strays(
    engine: QueueEngine, worker: bytes, fences: Fences, ctx: Context
) -> list[tuple[Known, Fences, list[int]]]:
    """[lock] Those of the jobs that the worker holds, as the log says, while no delivery of this process has them.

    By lane. The last list has those of them that were lost with their process before.
    """
    found: list[tuple[Known, Fences, list[int]]] = []
    mono = engine.core.monotonic()
    for lane, options, stream, group, some in by_lane(engine, ctx, fences):
        living, lapsed = lane.held_jobs(mono)
        mine = [
            (job, count)
            for job, count in some
            if job not in living and job not in lapsed and holds(group, worker, job, count)
        ]
        if any(count > 1 for _, count in mine):
            lane.fresh(ctx, options, stream, group)
        lost = [job for job, count in mine if was_lost(ctx, lane, options, job, count - 1)]
        found.append((lane, mine, lost))
    return found
