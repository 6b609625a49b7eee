"""Rows: the fields of the entries in a queue's streams, and the objects made of them.

For the queue `mails`:

    mails            value, header.<name> ..., key, retry (jobs/retries.py), time_limit (ms), expires (unix ms), dedup
                     (jobs/dedup.py), origin (first ID of a redriven or delayed job)
    mails:priority:3 as above, with the field priority
    mails:later      a delayed job, as above but without origin
    mails:holds      group, job, until (unix ms)
    mails:failures   group, job, worker, deliveries, error, traceback
    mails:dead       value, header.<name> ..., origin (or field.<name> ... of an entry that was not put by a queue),
                     key, retry, time_limit, priority, id, group, deliveries, reason, codec, workers (JSON list of
                     names), errors (JSON list of {"at": unix ms, "worker", "deliveries", "error", "traceback"})
    mails:cancels    as a dead job, with the reason `cancelled`; the last worker is the one that held it
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidelog.engine import ids
from tidelog.engine.api import EntryRow
from tidelog.jobs.codecs import NAMED, Codec
from tidelog.jobs.options import Options
from tidelog.jobs.retries import RetryPolicy, policy_of
from tidelog.jobs.units import checked_payload
from tidelog.store.errors import DataError, DecodeError, EncodeError

VALUE = b"value"
HEADER = b"header."
FIELD = b"field."  # prefix of a dead job's fields, if its entry was not put by a queue
ORIGIN = b"origin"
EXPIRES = b"expires"
PRIORITY = b"priority"
KEY = b"key"
DEDUP = b"dedup"
RETRY = b"retry"
TIME_LIMIT = b"time_limit"
EXPIRED = "expired"  # reason of a dead job that was not delivered in time
CANCELLED = "cancelled"  # reason of a job in `<name>:cancels`
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_CHARS = 2_000
_TRACEBACK_CHARS = 4_000  # keep the end of a traceback, because it names the error


# --- jobs


def encode_value(options: Options, value: Any, what: str = "a value") -> bytes:
    """A job's value as bytes, or `what` else it is in an error. Raises EncodeError, and PayloadTooLarge."""
    try:
        data = options.codec.encode(value)
    except Exception as error:
        # A traceback through our own codec would only repeat the text; that of the caller's codec shows the place.
        cause = None if options.codec is NAMED.get(options.codec.name) else error
        raise EncodeError(
            f"queue {options.name!r}: codec {options.codec.name} cannot encode "
            f"{what} of type {type(value).__name__}: {type(error).__name__}: {error}"
        ) from cause
    return checked_payload(options.name, data)


def key_of(row: Sequence[bytes]) -> bytes | None:
    """The key of a job, by its row."""
    if len(row) > 3 and row[2] == KEY:  # as of most jobs with a key
        return row[3]
    return fields_of(row).get(KEY) if KEY in row else None


def origin_of(row: Sequence[bytes]) -> bytes | None:
    """The ID that `put` returned for a job that has another one now, by its row; None if that is its first ID."""
    if len(row) == 4 and row[2] == ORIGIN:  # as of most jobs with an origin
        return row[3]
    return fields_of(row).get(ORIGIN) if ORIGIN in row else None


def shown_key(row: Sequence[bytes]) -> str | None:
    """The key of a job as text."""
    found = key_of(row)
    return None if found is None else shown(found)


def priority_of(row: Sequence[bytes]) -> int:
    """The priority of a job, by its row."""
    if PRIORITY not in row:  # as most jobs; this is faster than a look at its fields
        return 0
    found = fields_of(row).get(PRIORITY, b"")
    return int(found) if len(found) == 1 and found.isdigit() else 0


def retry_of(row: Sequence[bytes]) -> RetryPolicy | None:
    """The policy of a job's own by which it is retried; None if it has none that this version can read."""
    if RETRY not in row:
        return None
    found = fields_of(row).get(RETRY)
    try:
        return None if found is None else policy_of(shown(found))
    except DataError:
        return None


def expires_at(row: Sequence[bytes]) -> int | None:
    """The time in unix ms after which a job is not delivered any more; None if it has none, or no valid one."""
    found = fields_of(row).get(EXPIRES)
    return int(found) if found is not None and found.isdigit() and len(found) < 20 else None


def is_expired(row: Sequence[bytes], now: int) -> bool:
    """Whether a job is too old to be delivered."""
    if EXPIRES not in row:  # as most jobs; this is faster than a look at its fields
        return False
    end = expires_at(row)
    return end is not None and end <= now


def fields_of(row: Sequence[bytes]) -> dict[bytes, bytes]:
    """A row as a mapping. If a field occurs twice, the first one counts."""
    return dict(zip(reversed(row[::2]), reversed(row[1::2]), strict=False))


def value_of(row: Sequence[bytes]) -> bytes | None:
    """The encoded value of a job's row; None for an entry that has no value, put by another client."""
    if row[0] == VALUE:
        return row[1]
    return fields_of(row).get(VALUE)


def headers_of(row: Sequence[bytes]) -> dict[str, str]:
    """The headers of a job's row."""
    return {
        shown(name[len(HEADER) :]): shown(text)
        for name, text in zip(row[::2], row[1::2], strict=False)
        if name.startswith(HEADER)
    }


def decode_row(codec: Codec, row: Sequence[bytes]) -> Any:
    """A job's value. Raises DecodeError."""
    raw = value_of(row)
    if raw is None:
        raise DecodeError("the entry has no field 'value', so it is not a job of a queue")
    try:
        return codec.decode(raw)
    except Exception as error:
        raise DecodeError(
            f"codec {codec.name} cannot decode the value: {type(error).__name__}: {error}"
        ) from error


def decode_result(codec: Codec, raw: bytes) -> Any:
    """A result. Raises DecodeError."""
    try:
        return codec.decode(raw)
    except Exception as error:
        raise DecodeError(
            f"codec {codec.name} cannot decode the result: {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits, as `Queue.peek` shows it.

    Attributes:
        id: The job's ID, `ms-seq`.
        value: Its value; None if it cannot be decoded.
        headers: The headers that were put with it.
        raw: The value as bytes.
        problem: Why the value cannot be decoded; None if it can.
        due_at: When a delayed job is due, in UTC; None if it is due now.
        priority: Its priority, from 0 to 9.
        key: The key that it was put with; None if it has none.
    """

    id: str
    value: Any
    headers: dict[str, str]
    raw: bytes
    problem: str | None = None
    due_at: datetime | None = None
    priority: int = 0
    key: str | None = None

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return moment(int(self.id.partition("-")[0]))


def waiting_job(
    codec: Codec, entry_id: int, row: EntryRow, due_ms: int | None = None
) -> WaitingJob:
    """A WaitingJob made of an entry."""
    value, problem = None, None
    try:
        value = decode_row(codec, row)
    except DecodeError as error:
        problem = str(error)
    due_at = None if due_ms is None else moment(due_ms)
    raw, rank = value_of(row) or b"", (priority_of(row), shown_key(row))
    return WaitingJob(text(entry_id), value, headers_of(row), raw, problem, due_at, *rank)


# --- failures


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed delivery of a job.

    Attributes:
        job_id: The job's ID.
        at: When it was recorded, in UTC.
        worker: Name of the worker.
        deliveries: Number of the delivery that failed, from 1.
        error: Type and text of the exception, or the reason that the worker gave.
        traceback: The end of the traceback; empty if there was no exception.
    """

    job_id: str
    at: datetime
    worker: str
    deliveries: int
    error: str
    traceback: str


def evidence(reason: str | BaseException) -> tuple[str, str]:
    """(error, traceback) for the reason of a failure."""
    if not isinstance(reason, BaseException):
        return evidence_of(str(reason), "")
    # The text of a foreign exception is made by code that may raise anything.
    name = _said(lambda: type(reason).__qualname__, lambda _: "an exception without a name")
    said = _said(lambda: str(reason), lambda broken: f"(its text raised {broken})")
    lines = _said(
        lambda: "".join(traceback.format_exception(reason)),
        lambda broken: "".join(
            (*traceback.format_tb(reason.__traceback__), f"{name} (to print it raised {broken})\n")
        ),
    )
    return evidence_of(f"{name}: {said}" if said else name, lines)


def printable(error: BaseException) -> BaseException | None:
    """The exception for a log record; None if a logger cannot print it."""
    return (
        error if _said(lambda: "".join(traceback.format_exception(error)), lambda _: "") else None
    )


def _said(text: Callable[[], str], otherwise: Callable[[str], str]) -> str:
    """A text; or the other one, made of the name of the exception that the first raised. An interrupt goes on to the
    caller.
    """
    try:
        return text()
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        return otherwise(type(broken).__name__)


def evidence_of(error: str, trace: str) -> tuple[str, str]:
    """(error, traceback) as they are recorded: the beginning of one and the end of the other, both as UTF-8 can say it,
    so that each face and each record tells the same.
    """
    error, trace = shown(unshown(error[:_ERROR_CHARS])), shown(unshown(trace[-_TRACEBACK_CHARS:]))
    return error[:_ERROR_CHARS], trace[-_TRACEBACK_CHARS:]


def failure_row(
    options: Options, job: int, worker: bytes, deliveries: int, error: str, trace: str
) -> EntryRow:
    """An entry of `<name>:failures`."""
    return (
        *(b"group", options.group_key, b"job", ids.text(job), b"worker", worker),
        *(b"deliveries", b"%d" % deliveries, b"error", unshown(error)),
        *(b"traceback", unshown(trace)),
    )


def failure_of(entry_id: int, row: EntryRow) -> Failure:
    """The Failure that an entry of `<name>:failures` describes."""
    fields = fields_of(row)
    return Failure(
        shown(fields.get(b"job", b"")),
        moment(entry_id >> 64),
        shown(fields.get(b"worker", b"")),
        _number(fields.get(b"deliveries", b"0")),
        shown(fields.get(b"error", b"")),
        shown(fields.get(b"traceback", b"")),
    )


# --- holds


def deferral_row(options: Options, job: int, until: int) -> EntryRow:
    """An entry of `<name>:holds`; `until` in unix ms."""
    return b"group", options.group_key, b"job", ids.text(job), b"until", b"%d" % until


def deferral_of(group: bytes, row: EntryRow) -> tuple[int, int] | None:
    """(job, until) of an entry of `<name>:holds`; None if it is of another group or malformed."""
    fields = fields_of(row)
    job = ids.parse_or_none(fields.get(b"job", b""))
    until = fields.get(b"until", b"")
    if fields.get(b"group") != group or job is None or not until.isdigit():
        return None
    return job, _number(until)


# --- dead jobs


class DeadJob:
    """A job that was given up.

    Attributes:
        id: ID of the dead job, for `Dead.get`, `Dead.redrive` and `Dead.purge`.
        original_id: Its ID as a job.
        raw: The value as bytes.
        headers: The headers that were put with it.
        deliveries: How often it was delivered.
        reason: Why it was given up.
        workers: Names of the workers that failed with it.
        errors: The failures that were still known when it was given up, a list of `Failure`.
        codec: Name of the codec that was in use then.
        group: Name of the group that gave it up.
        priority: Its priority, from 0 to 9. A redrive puts it back with the same one.
        key: The key that it was put with, likewise; None if it has none.
        queue: Name of the queue.
    """

    __slots__ = (
        *("id", "original_id", "raw", "headers", "deliveries", "reason", "priority", "key"),
        *("queue", "workers", "errors", "codec", "group", "_codec", "_row"),
    )

    def __init__(self, entry_id: int, row: EntryRow, codec: Codec, queue: str) -> None:
        fields = fields_of(row)
        self.queue = queue
        self.id = text(entry_id)
        self.original_id = shown(fields.get(b"id", b""))
        self.raw = fields.get(VALUE, b"")
        self.headers = headers_of(row)
        self.deliveries = _number(fields.get(b"deliveries", b"0"))
        self.reason = shown(fields.get(b"reason", b""))
        self.codec = shown(fields.get(b"codec", b""))
        self.group = shown(fields.get(b"group", b""))
        self.priority, self.key = priority_of(row), shown_key(row)
        self.workers: list[str] = [str(name) for name in _listed(fields.get(b"workers"))]
        self.errors = [
            _told(self.original_id, found)
            for found in _listed(fields.get(b"errors"))
            if isinstance(found, dict)
        ]
        self._codec = codec
        self._row = row

    @property
    def value(self) -> Any:
        """The value, decoded by the codec of this queue object.

        Raises:
            DecodeError: The codec cannot decode it; `raw` has the bytes.
        """
        return decode_row(self._codec, self._row)

    @property
    def died_at(self) -> datetime:
        """When it was given up, in UTC."""
        return moment(int(self.id.partition("-")[0]))

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        number = ids.parse_or_none(self.original_id.encode())
        return moment(0 if number is None else number >> 64)

    def __repr__(self) -> str:
        return f"DeadJob(id={self.id!r}, original_id={self.original_id!r}, reason={self.reason!r})"


def dead_row(
    options: Options,
    job: int,
    row: EntryRow,
    deliveries: int,
    reason: str,
    errors: Iterable[Failure],
    held_by: str = "",
) -> EntryRow:
    """An entry of `<name>:dead`. `held_by`: the worker that has the job."""
    known = list(errors)
    told = [
        {
            "at": milliseconds(failure.at),
            "worker": failure.worker,
            "deliveries": failure.deliveries,
            "error": failure.error,
            "traceback": failure.traceback,
        }
        for failure in known
    ]
    workers = list(dict.fromkeys(failure.worker for failure in known if failure.worker))
    if held_by:
        workers = [name for name in workers if name != held_by] + [held_by]
    # of the lane, because another client may have put the job there without the field
    priority = (PRIORITY, b"%d" % options.priority) if options.priority else ()
    return (
        *carried(row),
        *priority,
        *(b"id", ids.text(job), b"group", options.group_key, b"deliveries", b"%d" % deliveries),
        *(b"reason", unshown(reason), b"codec", options.codec.name.encode()),
        *(b"workers", json.dumps(workers).encode(), b"errors", json.dumps(told).encode()),
    )


def carried(row: EntryRow) -> list[bytes]:
    """The fields that a dead job keeps: value, headers and origin; for another client's entry all, with a prefix."""
    ours = VALUE in row[::2]
    kept: list[bytes] = []
    for name, part in zip(row[::2], row[1::2], strict=False):
        if not ours:
            kept += (FIELD + name, part)
        elif name in (VALUE, KEY, RETRY, TIME_LIMIT, ORIGIN) or name.startswith(HEADER):
            kept += (name, part)
    return kept


def revived(row: EntryRow) -> list[bytes]:
    """The row of the job that a redriven dead job becomes: the kept fields and `origin`."""
    kept: list[bytes] = []
    for name, part in zip(row[::2], row[1::2], strict=False):
        if name in (VALUE, PRIORITY, KEY, RETRY, TIME_LIMIT) or name.startswith(HEADER):
            kept += (name, part)
        elif name.startswith(FIELD):
            kept += (name[len(FIELD) :], part)
    fields = fields_of(row)
    return [*kept, ORIGIN, fields.get(ORIGIN) or fields.get(b"id", b"")]


# --- helpers


def text(entry_id: int) -> str:
    """An ID as text."""
    return ids.text(entry_id).decode()


def moment(ms: int) -> datetime:
    """Unix ms as a datetime in UTC; the latest possible datetime if that is out of range."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def shown(raw: bytes) -> str:
    """Any bytes as text; invalid UTF-8 is escaped."""
    return raw.decode(errors="backslashreplace")


def unshown(given: str) -> bytes:
    """Text as bytes, lone surrogates escaped."""
    return given.encode(errors="backslashreplace")


def _number(raw: bytes) -> int:
    return int(raw) if raw.isdigit() and len(raw) < 20 else 0


def _listed(raw: bytes | None) -> list[Any]:
    try:
        found = json.loads(raw or b"[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _told(job_id: str, found: dict[Any, Any]) -> Failure:
    """A failure out of a dead job's `errors`. Another client may have written it, so every field is checked."""
    at, deliveries = found.get("at"), found.get("deliveries")
    return Failure(
        job_id,
        moment(at if isinstance(at, int) else 0),
        str(found.get("worker", "")),
        deliveries if isinstance(deliveries, int) else 0,
        str(found.get("error", "")),
        str(found.get("traceback", "")),
    )
