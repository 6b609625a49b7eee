"""The options of a job: what `put` takes beside the value. They are checked once, and travel as one object.

PutOptions     as a caller gives them: keyword arguments, for faces and checkers
JobOptions     checked: for the decision (jobs/putting.py), and for the words of QUEUE PUT, both ways
WHEN, JOB      the words of QUEUE PUTMANY and PUT for them, each with the number of words behind it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict

from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.jobs.dedup import MODES, WINDOW, mode_of
from tidelog.jobs.options import PRIORITY_MAX, check_names, named, ranked
from tidelog.jobs.own import MANY, ONE, Own
from tidelog.jobs.retries import RetryPolicy, policy_of
from tidelog.jobs.rows import HEADER, KEY, PRIORITY, RETRY, TIME_LIMIT, VALUE
from tidelog.jobs.work.later import Due, due_in, when
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError

if TYPE_CHECKING:
    from tidelog.engine.api import EntryRow


class PutManyOptions(TypedDict, total=False):
    """The options of `Queue.put_many`, for all of its jobs.

    delay       seconds or a timedelta until the job is due. It is stored at once. A bounded queue does not wait for
                delayed jobs
    at          when the job is due instead: a datetime with a time zone, at most ten years away
    ttl         seconds or a timedelta, counted from when the job is due. After that it is not delivered any more, but
                becomes a dead job with the reason `expired`
    priority    from 0 to 9. Jobs with a larger number are delivered first
    key         a name for what the job is about, such as `customer-7`, for the option `concurrency_per_key`
    retry       a RetryPolicy, or its text: how the job is tried again. It replaces the policy of the queue
    time_limit  seconds or a timedelta for which a handler may work on the job, in a run. It replaces that of the queue
    """

    delay: Duration | None
    at: datetime | None
    ttl: Duration | None
    priority: int
    key: str | None
    retry: RetryPolicy | str | None
    time_limit: Duration | None


class PutOptions(PutManyOptions, total=False):
    """The options of `Queue.put` and `Queue.new`: those above, and these.

    dedup_id    if a job has this ID, none is added, and the ID of that job is returned
    dedup       how long a job has its ID. "window": for a day, or until 10,000 newer ones came. "until-done": until it
                is done or dead. "replace": likewise, but this put replaces the job if it has not begun, and is put
                beside it if it has. An ID is free at once if its job was cancelled, purged, or expired unseen
    headers     names and texts stored beside the value
    """

    dedup_id: str | None
    dedup: str
    headers: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a job, checked.

    dedup_id, mode      a dedup ID and its mode, one of `dedup.MODES`
    headers             fields of the job's row: name, text, name, text ...
    delay_ms, at_ms     when it is due: after a delay in ms, or at a time in unix ms; both None = at once
    ttl_ms              how long it is delivered, counted from when it is due; None = for ever
    priority, key, retry    as in `PutManyOptions`
    limit_ms            `time_limit` in ms
    """

    dedup_id: bytes | None = None
    mode: str = WINDOW
    headers: tuple[bytes, ...] = ()
    delay_ms: int | None = None
    at_ms: int | None = None
    ttl_ms: int | None = None
    priority: int = 0
    key: bytes | None = None
    retry: RetryPolicy | None = None
    limit_ms: int | None = None

    @property
    def tail(self) -> EntryRow:
        """The fields of the job's row for its priority, its key, its retry policy and its limit, where it has them."""
        tail = (PRIORITY, b"%d" % self.priority) if self.priority else ()
        if self.key is not None:
            tail = (*tail, KEY, self.key)
        if self.limit_ms is not None:
            tail = (*tail, TIME_LIMIT, b"%d" % self.limit_ms)
        return tail if self.retry is None else (*tail, RETRY, str(self.retry).encode())

    def row(self, value: bytes) -> EntryRow:
        """The row of the job's entry."""
        return VALUE, value, *self.headers, *self.tail

    @property
    def is_timed(self) -> bool:
        """Whether a delay or a time was given."""
        return self.delay_ms is not None or self.at_ms is not None

    def due(self, wall_ms: int) -> Due | None:
        """When the job is due; None = at once. Raises DataError for a time too far away."""
        return due_in(self.delay_ms, self.at_ms, wall_ms)

    @classmethod
    def parse(cls, own: Own) -> JobOptions:
        """The options of a job from words. Raises CommandError."""
        delay, at, dedup = own.number(b"DELAY"), own.number(b"AT"), own.get(b"DEDUP")
        if delay is not None and at is not None:
            raise CommandError(SYNTAX)
        return cls(
            None if dedup is None else dedup[0],
            _mode_in(own),
            headers_in(own),
            when(None if delay is None else delay / 1000, None)[0],
            at,
            in_ms("ttl", own.milliseconds(b"TTL")),
            _priority_in(own),
            _key_in(own),
            _retry_in(own),
            in_ms("TIMELIMIT", own.milliseconds(b"TIMELIMIT")),
        )

    def words(self) -> list[bytes]:
        """The options as words of QUEUE PUT and PUTMANY."""
        words: list[bytes] = []
        if self.headers:
            names = [name.removeprefix(HEADER) for name in self.headers[::2]]
            words += (b"HEADERS", b"%d" % len(names))
            words += (word for pair in zip(names, self.headers[1::2]) for word in pair)
        if self.dedup_id is not None:
            words += (b"DEDUP", self.dedup_id)
        if self.mode != WINDOW:
            words += (b"MODE", self.mode.upper().encode())
        if self.delay_ms is not None:
            words += (b"DELAY", b"%d" % self.delay_ms)
        if self.at_ms is not None:
            words += (b"AT", b"%d" % self.at_ms)
        if self.ttl_ms is not None:
            words += (b"TTL", b"%d" % self.ttl_ms)
        if self.priority:
            words += (b"PRIORITY", b"%d" % self.priority)
        if self.key is not None:
            words += (b"KEY", self.key)
        if self.retry is not None:
            words += (b"RETRY", str(self.retry).encode())
        if self.limit_ms is not None:
            words += (b"TIMELIMIT", b"%d" % self.limit_ms)
        return words


NO_OPTIONS: Final = JobOptions()
WHEN: Final = dict.fromkeys(
    (b"DELAY", b"AT", b"TTL", b"PRIORITY", b"KEY", b"RETRY", b"TIMELIMIT"), ONE
)
JOB: Final = {**WHEN, b"DEDUP": ONE, b"MODE": ONE, b"HEADERS": MANY}
WHEN_USAGE: Final = (
    "[DELAY <ms> | AT <unix-ms>] [TTL <ms>] [PRIORITY <0 to 9>] [KEY <text>] [RETRY <policy>] "
    "[TIMELIMIT <ms>]"
)
ONE_USAGE: Final = (
    "[DEDUP <id> [MODE WINDOW | UNTIL-DONE | REPLACE]] [HEADERS <count> <name> <text> ...]"
)
_MANY: Final = frozenset(PutManyOptions.__annotations__)
_ONE: Final = _MANY | frozenset(PutOptions.__annotations__)


def job_options(given: PutOptions) -> JobOptions:
    """The options of `put`. Raises DataError, and TypeError for an unknown name."""
    return _checked("put", given, _ONE)


def batch_options(given: PutManyOptions) -> JobOptions:
    """The options of `put_many`. Raises DataError, and TypeError for an unknown name."""
    return _checked("put_many", given, _MANY)


def _checked(method: str, given: Mapping[str, Any], known: frozenset[str]) -> JobOptions:
    if not given:
        return NO_OPTIONS
    check_names(method, given, known)
    dedup_id, key = given.get("dedup_id"), given.get("key")
    delay_ms, at_ms = when(given.get("delay"), given.get("at"))
    return JobOptions(
        None if dedup_id is None else named("dedup_id", dedup_id),
        mode_of(given.get("dedup", WINDOW), dedup_id),
        header_fields(given.get("headers")),
        delay_ms,
        at_ms,
        in_ms("ttl", given.get("ttl")),
        ranked(given.get("priority", 0)),
        None if key is None else named("key", key),
        policy_of(given.get("retry")),
        in_ms("time_limit", given.get("time_limit")),
    )


def header_fields(headers: Any) -> tuple[bytes, ...]:
    """The argument `headers` as fields of a row. Raises DataError."""
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise DataError(f"headers must be a mapping of str to str, not {headers!r}")
    fields: list[bytes] = []
    for name, text in headers.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError(
                f"headers must be a mapping of str to str, but they contain {name!r}: {text!r}"
            )
        try:
            fields += (HEADER + name.encode(), text.encode())
        except UnicodeEncodeError as error:
            raise DataError(f"header {name!r} is not valid Unicode: {error}") from None
    return tuple(fields)


def in_ms(name: str, length: Duration | None) -> int | None:
    """A duration in ms, at least 1. Raises DataError."""
    return None if length is None else max(1, round(seconds(name, length) * 1000))


def headers_in(own: Own) -> tuple[bytes, ...]:
    """HEADERS as fields of a row."""
    words = own.get(b"HEADERS", ())
    return tuple(word if at % 2 else HEADER + word for at, word in enumerate(words))


def _priority_in(own: Own) -> int:
    found = own.number(b"PRIORITY", 0)
    if found is None or not 0 <= found <= PRIORITY_MAX:
        raise CommandError(b"ERR PRIORITY must be between 0 and %d" % PRIORITY_MAX)
    return found


def _mode_in(own: Own) -> str:
    found = own.get(b"MODE")
    mode = WINDOW if found is None else found[0].decode(errors="replace").lower()
    if mode not in MODES or found is not None and b"DEDUP" not in own:
        raise CommandError(b"ERR MODE is WINDOW, UNTIL-DONE or REPLACE, and needs DEDUP")
    return mode


def _key_in(own: Own) -> bytes | None:
    found = own.get(b"KEY")
    try:
        key = None if found is None else found[0].decode()
    except UnicodeDecodeError:
        key = ""
    if key == "":
        raise CommandError(b"ERR KEY must be UTF-8, and not empty")
    return None if found is None else found[0]


def _retry_in(own: Own) -> RetryPolicy | None:
    found = own.get(b"RETRY")
    try:
        return None if found is None else policy_of(found[0].decode())
    except (UnicodeDecodeError, DataError) as error:
        raise CommandError(b"ERR RETRY: " + str(error).encode(errors="surrogateescape")) from None
