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
    """The options of a queue other than its codec, for overloads. `Store.queue` describes them."""

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


class OpenOptions(QueueOptions, total=False):
    """The same, and those of opening its store."""

    fsync: str | None
    clock: Any
