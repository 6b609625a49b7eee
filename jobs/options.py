"""The options of a queue. They are not stored; two programs may use different ones."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tidelog.engine import ids
from tidelog.jobs.codecs import Codec, codec_of
from tidelog.jobs.rates import Rate, rate_of
from tidelog.jobs.retries import PLAIN, RetryPolicy, counted, policy_of
from tidelog.store.durations import seconds
from tidelog.store.errors import DataError

DEDUP_SECONDS = 86_400  # seconds for which a dedup ID is remembered: Redis's maximum
DEDUP_IDS = 10_000  # number of dedup IDs that are remembered: Redis's maximum
SUFFIXES = (":holds", ":failures", ":dead", ":later", ":cancels")
PRIORITY_MAX = 9
LANES = tuple(f":priority:{priority}" for priority in range(1, PRIORITY_MAX + 1))
RESERVED = (*SUFFIXES, *LANES)
SCHEDULES = b"tidelog:schedules"  # the stream that holds the schedules of a database


@dataclass(frozen=True, slots=True)
class Options:
    """A queue's name and settings, checked. Times are in seconds.

    retry_after                 the first pause before a retry, if no policy says otherwise
    lease                       how long a delivery may go without a renewal; the argument's default is `retry_after`
    time_limit                  how long a handler may work on a job without a limit of its own; only runs keep it
    keep_count, keep_seconds    how many acknowledged jobs to keep, or for how long; 0 and 0 = delete them at once
    keeps                       whether any are kept; precomputed, because the end of each job asks for it
    limited                     whether one of the limits is set; precomputed, because each fetch asks for it
    priority, root              of a lane (jobs/lanes.py): its priority, and the queue's key; else 0 and `key`
    """

    name: str
    group: str
    key: bytes
    group_key: bytes
    codec: Codec
    max_deliveries: int
    retry_after: float
    lease: float
    keep_count: int
    keep_seconds: float
    max_depth: int | None
    max_failures: int
    concurrency: int | None
    rate: Rate | None
    concurrency_per_key: int | None = None
    retry: RetryPolicy | None = None
    time_limit: float | None = None
    priority: int = 0
    root: bytes = b""
    keeps: bool = field(init=False)
    limited: bool = field(init=False)
    _lanes: dict[int, Options] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", self.root or self.key)
        object.__setattr__(self, "keeps", bool(self.keep_count or self.keep_seconds))
        limits = self.concurrency, self.rate, self.concurrency_per_key
        object.__setattr__(self, "limited", limits != (None, None, None))

    def lane(self, priority: int) -> Options:
        """The same options for the stream of a priority; 0 = these."""
        if not priority:
            return self
        found = self._lanes.get(priority)
        if found is None:
            key = self.key + LANES[priority - 1].encode()
            found = self._lanes[priority] = replace(self, key=key, priority=priority)
        return found

    @property
    def holds_key(self) -> bytes:
        return self.key + b":holds"

    @property
    def failures_key(self) -> bytes:
        return self.root + b":failures"

    @property
    def dead_key(self) -> bytes:
        return self.root + b":dead"

    @property
    def cancels_key(self) -> bytes:
        return self.root + b":cancels"

    @property
    def later_key(self) -> bytes:
        return self.root + b":later"

    @property
    def rate_key(self) -> bytes:
        return self.root + b":rate:" + self.group_key

    def most(self, own: RetryPolicy | None) -> int:
        """After how many deliveries a job is dead. `own`: its own policy."""
        policy = own or self.retry or PLAIN
        return self.max_deliveries if policy.max is None else policy.max

    def pause(
        self, own: RetryPolicy | None, deliveries: int, asked: float | None, chance: float
    ) -> float | None:
        """Seconds before the retry after delivery number `deliveries` has failed; None: it was the last one.

        Args:
            own: The job's own policy.
            deliveries: How often the job was delivered.
            asked: The pause that the worker has asked for; None = that of the policy.
            chance: From 0 to 1: the jitter.
        """
        if deliveries >= self.most(own):
            return None
        if asked is not None:
            return asked
        return (own or self.retry or PLAIN).pause(deliveries, chance, self.retry_after)


def arguments_of(options: Options) -> dict[str, Any]:
    """The arguments of `make_options` that give these options."""
    keep: Any = options.keep_count
    if options.keep_seconds:
        keep = timedelta(seconds=options.keep_seconds)
    rate = None if options.rate is None else str(options.rate)
    same = ("name", "group", "codec", "max_deliveries", "retry_after", "max_depth", "max_failures")
    limits = ("concurrency", "concurrency_per_key", "lease", "retry", "time_limit")
    found = {name: getattr(options, name) for name in (*same, *limits)}
    return found | {"keep": keep, "rate": rate}


def make_options(
    name: Any,
    group: Any = "workers",
    *,
    codec: Any = "json",
    max_deliveries: Any = 5,
    retry_after: Any = 30.0,
    keep: Any = 0,
    max_depth: Any = None,
    max_failures: Any = 1000,
    concurrency: Any = None,
    rate: Any = None,
    concurrency_per_key: Any = None,
    lease: Any = None,
    retry: Any = None,
    time_limit: Any = None,
) -> Options:
    """Check the options that the caller gave. Raises DataError, which names the option."""
    key, group_key = named("name", name), named("group", group)
    if name.endswith(RESERVED):
        raise DataError(
            f"a queue's name must not end in {', '.join(SUFFIXES)} or :priority:1 to :priority:{PRIORITY_MAX}: these "
            "endings name a queue's own streams"
        )
    if key == SCHEDULES:
        raise DataError(f"a queue cannot be named {name}: that stream holds the schedules")
    keep_count, keep_seconds = 0, 0.0
    if isinstance(keep, timedelta):
        keep_seconds = seconds("keep", keep, zero=True)
    elif isinstance(keep, int) and not isinstance(keep, bool) and keep >= 0:
        keep_count = keep
    else:
        raise DataError(f"keep must be 0, a number of jobs or a timedelta, not {keep!r}")
    pause = seconds("retry_after", retry_after)
    return Options(
        name,
        group,
        key,
        group_key,
        codec_of(codec),
        counted("max_deliveries", max_deliveries),
        pause,
        pause if lease is None else seconds("lease", lease),
        keep_count,
        keep_seconds,
        None if max_depth is None else counted("max_depth", max_depth),
        counted("max_failures", max_failures),
        None if concurrency is None else counted("concurrency", concurrency),
        rate_of(rate),
        None
        if concurrency_per_key is None
        else counted("concurrency_per_key", concurrency_per_key),
        policy_of(retry),
        None if time_limit is None else seconds("time_limit", time_limit),
    )


def ranked(priority: Any) -> int:
    """The argument `priority`. Raises DataError."""
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not 0 <= priority <= PRIORITY_MAX
    ):
        raise DataError(f"priority must be an integer from 0 to {PRIORITY_MAX}, not {priority!r}")
    return priority


def named(what: str, name: Any) -> bytes:
    """A name as bytes: a str that is not empty. Raises DataError."""
    if not isinstance(name, str) or not name:
        raise DataError(f"{what} must be a non-empty str, not {name!r}")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{what} must be valid Unicode: {error}") from None


def check_names(method: str, given: Iterable[str], known: Container[str]) -> None:
    """Raise TypeError if a method does not know one of the keyword arguments."""
    for name in given:
        if name not in known:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")


def positive(name: str, value: Any) -> None:
    """Raise DataError unless an argument is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"{name} must be an integer of at least 1, not {value!r}")


def job_number(job_id: Any, what: str = "a job") -> int:
    """The ID of a job as a number. Raises DataError, which says whose ID it should be."""
    number = (
        ids.parse_or_none(job_id.encode()) if isinstance(job_id, str) and job_id.isascii() else None
    )
    if number is None:
        raise DataError(f"the ID of {what} looks like 1767225600000-0, not {job_id!r}")
    return number
