"""QUEUE JOB: what became of a job."""

from __future__ import annotations

from typing import Any

from tidelog.engine.reply import NULL_ARRAY, Map, Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.found import Finding
from tidelog.jobs.status import JobStatus
from tidelog.jobs.verbs.failures import failure_told, told_failure
from tidelog.jobs.verbs.verb import JOB, LOOKS, Facts, OneJob, Question


class AskJob(OneJob, Question):
    """The status of a job, for the group of the queue: JobStatus, or None if nothing of the job is left."""

    __slots__ = ()

    name = b"JOB"
    facts = Facts(
        *(-4, LOOKS, "RO access", "0.2.0", "Tell what became of a job"),
        (
            "JOB <name> <id>",
            "The status of a job, by the ID that PUT replied; nil if nothing of it is left.",
        ),
    )
    needs = JOB

    def question(self, engine: QueueEngine, timeout_ms: int | None) -> Finding:
        """See `Question`."""
        return Finding(engine, self.job)

    def reply(self, result: JobStatus | None) -> Reply:
        """See `Verb`."""
        if result is None:
            return NULL_ARRAY
        due = None if result.due_at is None else rows.milliseconds(result.due_at)
        return Map(
            (
                *(b"id", result.id.encode(), b"state", result.state.encode()),
                *(b"present_id", _bytes(result.present_id), b"fields", list(result.row)),
                *(b"deliveries", result.deliveries, b"worker", _bytes(result.worker)),
                *(b"due_ms", due, b"reason", _bytes(result.reason)),
                *(
                    b"failures",
                    list(map(told_failure, result.failures)),
                    b"result",
                    result.result_raw,
                ),
            )
        )

    def result(self, reply: Any) -> JobStatus | None:
        """See `Verb`."""
        if reply is None:
            return None
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        due = found[b"due_ms"]
        return JobStatus(
            *(found[b"id"].decode(), found[b"state"].decode(), _text(found[b"present_id"])),
            *(tuple(found[b"fields"]), found[b"deliveries"], _text(found[b"worker"])),
            *(None if due is None else rows.moment(due), _text(found[b"reason"])),
            *(tuple(map(failure_told, found[b"failures"])), found[b"result"]),
        )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else rows.unshown(text)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else rows.shown(raw)
