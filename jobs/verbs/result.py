"""QUEUE RESULT: what the worker of a job gave, once the job is done."""

from __future__ import annotations

from typing import Any

from tidelog.engine import ids
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.own import ONE
from tidelog.jobs.verbs.verb import Facts, OneJob, Question
from tidelog.jobs.work.results import NONE, Died, Found, Outcome


def waited_ms(wait: float | None) -> int | None:
    """How long a caller of `question` waits, from seconds; None = for ever."""
    return 0 if wait is None else max(1, round(wait * 1000)) if wait else None


class AskResult(OneJob, Question):
    """The outcome of a job: Found, Died, NONE, or None if it has not ended in time."""

    __slots__ = ()

    name = b"RESULT"
    facts = Facts(
        *(-4, "readonly blocking noscript no_multi", "RO access", "0.1.0"),
        "Get what the worker of a job gave as its result; may block",
        ("RESULT <name> <id> [BLOCK <ms>]", "The result that the worker of a job gave."),
    )
    options = {b"BLOCK": ONE}

    def question(self, engine: QueueEngine, timeout_ms: int | None) -> Outcome:
        """See `Question`."""
        return Outcome(engine.core, engine.known.results, engine.options, self.job, timeout_ms)

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
