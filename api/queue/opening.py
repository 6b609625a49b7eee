"""`tidelog.queue`: open a store for one queue. `tidelog.aqueue` is in api.queue.aopening."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tidelog.api.opening import open_store
from tidelog.api.queue.face import Queue
from tidelog.jobs.options import make_options
from tidelog.jobs.retries import RetryPolicy
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration
from tidelog.store.opening import AnyPath


def open_queue(
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
) -> Queue:
    """Open the store in a directory for one queue. Creates it if the directory is empty or missing.

        with tidelog.queue("mail-data", "mails") as mails:
            mails.put({"to": "ann@example.org"})

    To use several queues, open the store and call `Store.queue` for each.

    Args:
        path: The directory.
        name: Name of the queue. For it and the options up to `retry` see `Store.queue`.
        fsync: As in `tidelog.open`.
        clock: As in `tidelog.open`.

    Returns:
        The queue. Closing it closes the store.

    Raises:
        DataError: An option or the path is invalid.
        CannotOpen: As `tidelog.open`, with the same subclasses.
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
    queue = Queue(open_store(path, fsync=fsync, clock=clock), options)
    queue._opened_here = True
    return queue
