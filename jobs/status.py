"""Status: what became of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from tidelog.jobs import rows
from tidelog.jobs.codecs import NAMED, Codec
from tidelog.jobs.progress import Progress
from tidelog.jobs.retries import RetryPolicy
from tidelog.jobs.rows import Failure
from tidelog.jobs.time_limits import time_limit_of

DELAYED: Final = "delayed"
WAITING: Final = "waiting"
RUNNING: Final = "running"
PAUSED: Final = "paused"
DONE: Final = "done"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment, as `Queue.job` shows it, for the group of the queue.

    Attributes:
        id: The ID that `put` returned.
        state: `delayed`: not due yet. `waiting`: due, and no worker has it. `running`: a worker has it. `paused`: it
            failed, and waits for its retry. `done`, `dead`, or `cancelled`.
        present_id: The ID that it has now, that of a delayed or redriven job, or of a dead one in `Queue.dead`; of a
            cancelled one, the last that it had. None if only its result is left.
        row: Its fields, the name and the value of each one after the other; empty if only its result is left.
        deliveries: How often it was delivered; None if only its result is left, or nothing but its entry.
        worker: The name of the worker that has it, or had it last, if that is still recorded.
        due_at: When a delayed or a paused job is due, in UTC.
        reason: Why a dead job was given up; `cancelled` of a cancelled one.
        failures: The failures that are still recorded, oldest first.
        result_raw: The result that its worker left, as bytes; None if there is none, or it has expired.
        progress: How far it has come, as its worker said last, until it ends.
    """

    id: str
    state: str
    present_id: str | None = None
    row: Sequence[bytes] = ()
    deliveries: int | None = None
    worker: str | None = None
    due_at: datetime | None = None
    reason: str | None = None
    failures: Sequence[Failure] = ()
    result_raw: bytes | None = None
    progress: Progress | None = None
    codec: Codec = field(default=NAMED["bytes"], repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The value, decoded by the codec of the queue; None if only its result is left.

        Raises:
            DecodeError: The codec cannot decode it; `row` has the bytes.
        """
        return rows.decode_row(self.codec, self.row) if self.row else None

    @property
    def result(self) -> Any:
        """The result that its worker left, decoded; None if there is none, or it has expired.

        Raises:
            DecodeError: The codec cannot decode it; `result_raw` has the bytes.
        """
        return None if self.result_raw is None else rows.decode_result(self.codec, self.result_raw)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were put with it."""
        return rows.headers_of(self.row)

    @property
    def priority(self) -> int:
        """Its priority, from 0 to 9."""
        return rows.priority_of(self.row)

    @property
    def key(self) -> str | None:
        """The key that it was put with; None if it has none."""
        return rows.shown_key(self.row)

    @property
    def retry(self) -> RetryPolicy | None:
        """The retry policy that it was put with; None if it has none, so that of the queue counts."""
        return rows.retry_of(self.row)

    @property
    def time_limit(self) -> float | None:
        """The limit of time that it was put with, in seconds; None if it has none."""
        return time_limit_of(self.row)

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return rows.moment(int(self.id.partition("-")[0]))

    def as_dict(self) -> dict[str, Any]:
        """The facts as a dict, for JSON: times as ISO 8601.

        Value and result are as they were given if the codec is json, otherwise their bytes as text.
        """
        failures = [asdict(each) | {"at": each.at.isoformat()} for each in self.failures]
        due_at = None if self.due_at is None else self.due_at.isoformat()
        value = rows.value_of(self.row) if self.row else None
        return {
            **{"id": self.id, "state": self.state, "present_id": self.present_id},
            **{"value": self._plain(value), "headers": self.headers},
            **{"priority": self.priority, "key": self.key, "deliveries": self.deliveries},
            "retry": None if self.retry is None else str(self.retry),
            "time_limit": self.time_limit,
            **{"enqueued_at": self.enqueued_at.isoformat(), "worker": self.worker},
            **{"due_at": due_at, "reason": self.reason, "failures": failures},
            **{"result": self._plain(self.result_raw)},
            "progress": None if self.progress is None else self.progress.as_dict(),
        }

    def _plain(self, raw: bytes | None) -> Any:
        """A value or a result, for JSON."""
        if raw is None:
            return None
        if self.codec is NAMED["json"]:
            try:
                return self.codec.decode(raw)
            except ValueError:
                pass  # another client put it
        return rows.shown(raw)


def texts(status: JobStatus) -> Iterator[tuple[str, str]]:
    """Each text of a job that a person may look for, and before it the part of the job that it is.

    value     as it is stored; and if it is JSON that escapes letters, with the letters
    key
    header    `name: text`
    error     errors and tracebacks of its failures, and why it died
    """
    value = rows.shown(rows.value_of(status.row) or b"") if status.row else ""
    yield "value", value
    if "\\u" in value:
        with suppress(ValueError, RecursionError):
            yield "value", json.dumps(json.loads(value), ensure_ascii=False)
    yield "key", status.key or ""
    for name, text in status.headers.items():
        yield "header", f"{name}: {text}"
    yield "error", status.reason or ""
    for failure in status.failures:
        yield "error", failure.error
        yield "error", failure.traceback


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs that a search found, as `Queue.find` shows them.

    Attributes:
        jobs: The jobs, by the IDs that they have now (`JobStatus.present_id`), the smallest first.
        until: How far the search looked, for the argument `after` of the next one; None: it looked at all jobs.
    """

    jobs: list[JobStatus]
    until: str | None
