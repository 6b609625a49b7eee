"""QUEUE JOB: what became of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.engine.reply import NULL_ARRAY, Map, Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.found import Finding
from tidelog.jobs.progress import packed, unpacked
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
        return NULL_ARRAY if result is None else told_status(result)

    def result(self, reply: Any) -> JobStatus | None:
        """See `Verb`."""
        return None if reply is None else status_told(reply)


def told_status(status: JobStatus) -> Map:
    """A status in a reply of the server."""
    due = None if status.due_at is None else rows.milliseconds(status.due_at)
    come = status.progress
    told: tuple[bytes, ...] = ()
    if come is not None:
        told = b"progress", packed(come.fraction, come.text, rows.milliseconds(come.at))
    return Map(
        (
            *(b"id", status.id.encode(), b"state", status.state.encode()),
            *(b"present_id", _bytes(status.present_id), b"fields", list(status.row)),
            *(b"deliveries", status.deliveries, b"worker", _bytes(status.worker)),
            *(b"due_ms", due, b"reason", _bytes(status.reason)),
            *(b"failures", list(map(told_failure, status.failures))),
            *(b"result", status.result_raw, *told),
        )
    )


def status_told(reply: Sequence[Any]) -> JobStatus:
    """The status of a reply."""
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    due = found[b"due_ms"]
    return JobStatus(
        *(found[b"id"].decode(), found[b"state"].decode(), _text(found[b"present_id"])),
        *(tuple(found[b"fields"]), found[b"deliveries"], _text(found[b"worker"])),
        *(None if due is None else rows.moment(due), _text(found[b"reason"])),
        *(tuple(map(failure_told, found[b"failures"])), found[b"result"]),
        unpacked(found.get(b"progress")),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else rows.unshown(text)


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else rows.shown(raw)
