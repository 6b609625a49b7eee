"""Ending: a worker says of one delivery that the job is done, failed, given back, or kept. Each is its own file."""

from __future__ import annotations

from typing import ClassVar, Final

from tidelog.engine.api import Context
from tidelog.jobs import rows
from tidelog.jobs.own import Own
from tidelog.jobs.verbs.verb import Safe, Verb
from tidelog.jobs.work.known import Delivery
from tidelog.jobs.work.settle import Held

# The states of a job in a worker's hands.
OPEN: Final = "open"
ACKED: Final = "acked"
GIVEN: Final = "given"  # nacked, failed or released
LOST: Final = "lost"  # given to another worker, or settled by one


class Ending(Verb):
    """A request about one delivery: whether the worker still held the job.

    Its places are those behind the worker, the ID and the number of deliveries.

    end       the state of the job afterwards
    counted   False: the job may be delivered again with the same number of deliveries
    """

    __slots__ = ()

    safe = Safe.FENCED

    end: ClassVar[str] = GIVEN
    counted: ClassVar[bool] = True

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """[lock] The commands that do it; None if the worker does not hold the job."""
        raise NotImplementedError

    def kept(self, delivery: Delivery) -> None:
        """The worker keeps the job, and it was written."""


def evidence_words(error: str, trace: str) -> list[bytes]:
    """The error of a delivery, and its traceback if there is one."""
    words = [rows.unshown(error)]
    return [*words, b"TRACE", rows.unshown(trace)] if trace else words


def evidence_in(words: list[bytes], own: Own) -> tuple[str, str]:
    """The error and the traceback from words, cut to what is stored."""
    return rows.evidence_of(rows.shown(words[0]), rows.shown(own.get(b"TRACE", [b""])[0]))
