"""`tidelog.queue` and `tidelog.aqueue`: open a store for the sake of one queue."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.opening import AnyPath, open_store
from tidelog.store.queue.face import Queue, make_queue
from tidelog.store.queue.options import Options, make_options

if TYPE_CHECKING:
    from tidelog.store.queue.aio import AsyncQueue


def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    codec: Any = "json",
    max_deliveries: int = 5,
    retry_after: float = 30.0,
    keep: int | timedelta = 0,
    max_depth: int | None = None,
    max_failures: int = 1000,
    fsync: str = "always",
    clock: Clock = SYSTEM,
) -> Queue:
    """Open the store in a directory, creating it if it is empty or missing, for one queue; closing that closes it.

    For the options of the queue see `Store.queue`, for `fsync` and what is raised see `tidelog.open`. For several
    queues open the store, and ask it for each.

        with tidelog.queue("mail-data", "mails") as mails:
            mails.put({"to": "ann@example.org"})
    """
    options = make_options(
        *(name, group),
        codec=codec,
        max_deliveries=max_deliveries,
        retry_after=retry_after,
        keep=keep,
        max_depth=max_depth,
        max_failures=max_failures,
    )
    queue = make_queue(open_store(path, fsync=fsync, clock=clock), options)
    queue._opened_here = True
    return queue


def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    codec: Any = "json",
    max_deliveries: int = 5,
    retry_after: float = 30.0,
    keep: int | timedelta = 0,
    max_depth: int | None = None,
    max_failures: int = 1000,
    fsync: str = "always",
    clock: Clock = SYSTEM,
) -> QueueOpening:
    """`queue` for asyncio: `jobs = await aqueue(path, name)`, or `async with aqueue(path, name) as jobs`."""
    options = make_options(
        *(name, group),
        codec=codec,
        max_deliveries=max_deliveries,
        retry_after=retry_after,
        keep=keep,
        max_depth=max_depth,
        max_failures=max_failures,
    )
    return QueueOpening(path, options, fsync, clock)


class QueueOpening:
    """What `aqueue` returns: `await` it for the queue, or use it as an async context manager."""

    def __init__(self, path: AnyPath, options: Options, fsync: str, clock: Clock) -> None:
        self._path, self._options, self._fsync, self._clock = path, options, fsync, clock
        self._queue: AsyncQueue | None = None

    async def _opened(self) -> AsyncQueue:
        from tidelog.store.aio import aopen_store
        from tidelog.store.queue import aio

        store = await aopen_store(self._path, fsync=self._fsync, clock=self._clock)
        queue = aio.make_queue(store, self._options)
        queue._opened_here = True
        return queue

    def __await__(self) -> Generator[Any, None, AsyncQueue]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncQueue:
        self._queue = await self._opened()
        return self._queue

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._queue is not None
        await self._queue.aclose()
