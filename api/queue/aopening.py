"""`tidelog.aqueue`: open a store for one queue, for asyncio. `tidelog.queue` is in api.queue.opening."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidelog.api.aio import AsyncStore
from tidelog.api.aopening import Opening
from tidelog.api.queue.aio import AsyncQueue
from tidelog.jobs.options import make_options
from tidelog.jobs.retries import RetryPolicy
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration
from tidelog.store.opening import AnyPath, open_core
from tidelog.store.options import make_options as make_open_options


def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
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
    fsync: str = "always",
    clock: Clock = SYSTEM,
) -> Opening[AsyncQueue]:
    """Open the store in a directory for one queue, for asyncio. As `tidelog.queue`.

        mails = await tidelog.aqueue("mail-data", "mails")          # close it with `await mails.aclose()`
        async with tidelog.aqueue("mail-data", "mails") as mails:   # closes it
            ...

    Returns:
        An object to `await` or to use in `async with`; the directory is opened then, in a thread.
    """
    options = make_options(
        *(name, group),
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
    )

    how = make_open_options(fsync=fsync)

    def opened() -> AsyncQueue:
        core = open_core(path, how, None, clock)
        queue = AsyncQueue(AsyncStore(core, decode=False), options)
        queue._opened_here = True
        return queue

    return Opening(opened)
