"""Types of a queue's values: `Queue[T]`, and how its codec gives T."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from tidelog.jobs.retries import RetryPolicy
from tidelog.store.durations import Duration

if TYPE_CHECKING:
    # A checker knows typing_extensions without its being installed. With the default, `Queue` alone means `Queue[Any]`.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Adapter(Protocol[T]):
    """A pydantic TypeAdapter of T."""

    def validate_json(self, data: Any, /) -> T:
        """The value of JSON."""

    def dump_json(self, instance: T, /) -> bytes:
        """The JSON of a value."""


Encoded = bytes | bytearray | memoryview
# The codecs of which a checker can tell the type of the values: a pydantic model, a TypeAdapter, a pair of functions.
Typed = type[T] | Adapter[T] | tuple[Callable[[T], Encoded], Callable[[bytes], T]]


class QueueOptions(TypedDict, total=False):
    """The options of a queue other than its codec.

    Attributes:
        max_deliveries: A job that was delivered this often without success becomes a dead job. Default: 5.
        retry_after: Seconds or a timedelta: the first pause before a retry, and how long a lease outlives its worker,
            unless `lease` says that. Default: 30.
        keep: How many acknowledged jobs to keep, or (timedelta) for how long after they were put. Default: 0.
        max_depth: Bound on unfinished jobs; `put` waits while the queue is full. None, the default = no bound.
        max_failures: How many records of failures to keep. Default: 1000.
        concurrency: How many jobs the workers of the group may hold at once. None, the default = no limit.
        rate: How many jobs may be delivered, such as `100/m`; also per `s`, `h` or `d`. None, the default = no limit.
        concurrency_per_key: How many jobs with the same key may be in progress at once. With 1, the jobs of a key are
            done one after the other. None, the default = no limit.
        lease: Seconds or a timedelta: how long a job that its worker holds may go without a renewal. Renewals come by
            themselves, so that is how long a lease outlives its worker. None, the default = `retry_after`. With it or
            `retry`, each call at an older server raises Unsupported.
        retry: A RetryPolicy, or its text such as "max=8 base=2 cap=600": how jobs are tried again that have no policy
            of their own. None, the default = `max_deliveries` deliveries, and pauses that double from `retry_after`.
        time_limit: Seconds or a timedelta for which a handler may work on a job that has no limit of its own, in `run`
            and `arun`. None, the default = no limit. A loop over `consume` keeps none, and gives `consume` its own.
    """

    max_deliveries: int
    retry_after: Duration
    keep: int | timedelta
    max_depth: int | None
    max_failures: int
    concurrency: int | None
    rate: str | None
    concurrency_per_key: int | None
    lease: Duration | None
    retry: RetryPolicy | str | None
    time_limit: Duration | None


class OpenOptions(QueueOptions, total=False):
    """The same, and those of opening its store."""

    fsync: str | None
    clock: Any
