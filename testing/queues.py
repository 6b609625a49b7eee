"""Queues in a temporary store, which is removed at the end of the block, also after an exception."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidelog.store.clock import Clock
from tidelog.store.durations import Duration
from tidelog.testing.stores import astore, store

if TYPE_CHECKING:
    from tidelog.api.queue.aio import AsyncQueue
    from tidelog.api.queue.face import Queue
    from tidelog.jobs.retries import RetryPolicy


@contextmanager
def queue(
    name: str,
    group: str = "workers",
    *,
    clock: Clock | None = None,
    codec: Any = "json",
    max_deliveries: int = 5,
    retry_after: Duration = 30.0,
    keep: int | timedelta = 0,
    max_depth: int | None = None,
    max_failures: int = 1000,
    concurrency: int | None = None,
    rate: str | None = None,
    concurrency_per_key: int | None = None,
    lease: Duration | None = None,
    retry: RetryPolicy | str | None = None,
    time_limit: Duration | None = None,
    fsync: str = "no",
) -> Iterator[Queue]:
    """An empty queue in a temporary store (`queue.store`), which is closed and removed at the end of the block.

    Args:
        name: Name of the queue. For it and the options other than these see `Store.queue`.
        clock: A `testing.Clock`; None = the system clock.
        fsync: `no` by default, since a temporary store need not survive a power cut.

    Raises:
        DataError: An option is invalid.
        CannotOpen: The operating system refuses.
    """
    with store(clock, fsync=fsync) as db:
        with db.queue(
            name,
            group,
            codec=codec,
            max_deliveries=max_deliveries,
            retry_after=retry_after,
            keep=keep,
            max_depth=max_depth,
            max_failures=max_failures,
            concurrency=concurrency,
            rate=rate,
            concurrency_per_key=concurrency_per_key,
            lease=lease,
            retry=retry,
            time_limit=time_limit,
        ) as found:
            yield found


@asynccontextmanager
async def aqueue(
    name: str,
    group: str = "workers",
    *,
    clock: Clock | None = None,
    codec: Any = "json",
    max_deliveries: int = 5,
    retry_after: Duration = 30.0,
    keep: int | timedelta = 0,
    max_depth: int | None = None,
    max_failures: int = 1000,
    concurrency: int | None = None,
    rate: str | None = None,
    concurrency_per_key: int | None = None,
    lease: Duration | None = None,
    retry: RetryPolicy | str | None = None,
    time_limit: Duration | None = None,
    fsync: str = "no",
) -> AsyncIterator[AsyncQueue]:
    """An empty queue in a temporary store, for asyncio: `async with`. As `testing.queue`."""
    async with astore(clock, fsync=fsync) as db:
        async with db.queue(
            name,
            group,
            codec=codec,
            max_deliveries=max_deliveries,
            retry_after=retry_after,
            keep=keep,
            max_depth=max_depth,
            max_failures=max_failures,
            concurrency=concurrency,
            rate=rate,
            concurrency_per_key=concurrency_per_key,
            lease=lease,
            retry=retry,
            time_limit=time_limit,
        ) as found:
            yield found
