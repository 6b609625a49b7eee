"""QUEUE RESULT: what the worker of a job gave, once the job is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tidelog.engine import ids
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import job_number
from tidelog.jobs.own import ONE, Own, job_id
from tidelog.jobs.verbs.verb import Facts, Question
from tidelog.jobs.work.results import NONE, Died, Found, Outcome


def waited_ms(wait: float | None) -> int | None:
    """How long a caller of `question` waits, from seconds; None = for ever."""
    return 0 if wait is None else max(1, round(wait * 1000)) if wait else None


@dataclass(frozen=True, slots=True)
class AskResult(Question):
    """The outcome of a job: Found, Died, NONE, or None if it has not ended in time."""

    name = b"RESULT"
    facts = Facts(
        *(-4, "readonly blocking noscript no_multi", "RO access", "0.1.0"),
        "Get what the worker of a job gave as its result; may block",
        ("RESULT <name> <id> [BLOCK <ms>]", "The result that the worker of a job gave."),
    )
    places = 1
    options = {b"BLOCK": ONE}

    job: int

    @classmethod
    def of(cls, job: str) -> Self:
        """The request of a caller who names a job. Raises DataError."""
        return cls(job_number(job))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [ids.text(self.job)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(job_id(words[0]))

    def question(self, engine: QueueEngine, timeout_ms: int | None) -> Outcome:
        """See `Question`."""
        return Outcome(engine.core, engine.shared.results, engine.options, self.job, timeout_ms)

    def reply(self, result: Any) -> Reply:
        """See `Verb`."""
        if isinstance(result, Found):
            return [b"DONE", result.value]
        if isinstance(result, Died):
            reason = rows.fields_of(result.row).get(b"reason", b"")
            return [b"DEAD", ids.text(result.entry), reason]
        return [b"NONE"] if result == NONE else NULL_ARRAY

    def result(self, reply: Any) -> Any:
        """See `Verb`."""
        if reply is None:
            return None
        outcome, *rest = reply
        if outcome == b"DONE":
            return Found(rest[0])
        return Died(ids.parse(rest[0]), (b"reason", rest[1])) if outcome == b"DEAD" else NONE
