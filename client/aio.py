"""The faces of a shared store for asyncio. Each call runs in a thread of its own, so a slow server blocks no loop.

A call that is cancelled goes on in its thread. A job that such a call was given is released there, so nobody waits for
the end of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

from tidelog.api.aclosing import AsyncClosing
from tidelog.api.acompound import AsyncCompound
from tidelog.api.queue.aends import AsyncEnds
from tidelog.api.queue.ahandle import AsyncHandle
from tidelog.api.queue.aschedules import AsyncSchedules
from tidelog.api.queue.averbs import AsyncVerbs
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.api.queue.running.by_tasks import RunsTasks
from tidelog.api.queue.running.plan import SHARED_PASSING
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, TextT
from tidelog.client.apipeline import AsyncSharedPipeline
from tidelog.client.calls import StoreCalls
from tidelog.client.consumer import Call, SharedConsumer
from tidelog.client.job import SharedJob
from tidelog.client.missing import answers_missing
from tidelog.client.queue import SharedQueue
from tidelog.client.queue_calls import JobCalls, QueueCalls
from tidelog.client.schedules import SharedSchedules
from tidelog.client.store import SharedStore
from tidelog.client.threaded import threaded
from tidelog.engine.api import EntryRow
from tidelog.jobs.job_facts import JobFacts
from tidelog.jobs.job_options import PutOptions
from tidelog.jobs.typed import T as V
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.verb import OfDatabase, Verb
from tidelog.store.commit.tasks import this_task
from tidelog.store.durations import Duration
from tidelog.store.errors import TidelogError
from tidelog.store.lifetime import DRAIN_SECONDS

if TYPE_CHECKING:
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.retries import RetryPolicy
    from tidelog.jobs.typed import QueueOptions, Typed

T = TypeVar("T")


@answers_missing
class AsyncSharedStore(StoreCalls[TextT], AsyncCompound[AsyncSharedPipeline, TextT]):
    """A store that another process serves, for asyncio. `tidelog.aconnect` makes it.

    It has the methods of `SharedStore`, awaited. Any of them may raise the errors that `SharedStore` lists.
    """

    def __init__(self, store: SharedStore[TextT]) -> None:
        self._store = store
        self._opened_here = False

    def __repr__(self) -> str:
        return repr(self._store)

    def __reduce__(self) -> Any:
        return self._store.__reduce__()  # raises

    async def _call(self, shape: Shape[T], words: list[Any]) -> T:
        return await threaded(partial(self._store._call, shape, words))

    async def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> TextT:
        return await threaded(partial(self._store._add, name, fields))

    def db(self, number: int) -> Self:
        """The same store, another database. As `SharedStore.db`.

        Raises:
            DataError: There is no such database.
        """
        return type(self)(self._store.db(number))

    def at(
        self,
        level: str,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> Self:
        """The same store, with replies at another durability level. As `SharedStore.at`.

        Raises:
            DataError: The level is unknown, or a number is invalid.
        """
        at = self._store.at
        return type(self)(at(level, replicas=replicas, fsynced=fsynced, timeout=timeout))

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._store.closed

    # --- pipelines and transactions

    def pipeline(
        self, transaction: bool = True, shard_hint: str | None = None
    ) -> AsyncSharedPipeline:
        """A pipeline; it queues commands, and `execute` is awaited. As `SharedStore.pipeline`."""
        return AsyncSharedPipeline(self._store.pipeline(transaction, shard_hint))

    # --- the store itself

    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["bytes"],
        **options: Unpack[QueueOptions],
    ) -> AsyncSharedQueue[bytes]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: Literal["str"],
        **options: Unpack[QueueOptions],
    ) -> AsyncSharedQueue[str]: ...
    @overload
    def queue(
        self, name: str, group: str = "workers", *, codec: Typed[T], **options: Unpack[QueueOptions]
    ) -> AsyncSharedQueue[T]: ...
    @overload
    def queue(
        self,
        name: str,
        group: str = "workers",
        *,
        codec: str | Codec = "json",
        **options: Unpack[QueueOptions],
    ) -> AsyncSharedQueue[Any]: ...
    def queue(
        self,
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
    ) -> AsyncSharedQueue[Any]:
        """A durable queue in this store. As `SharedStore.queue`."""
        return AsyncSharedQueue(
            self._store.queue(
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
            ),
            self,
        )

    @property
    def schedules(self) -> AsyncSharedSchedules:
        """The schedules of this database. As `SharedStore.schedules`, awaited."""
        return AsyncSharedSchedules(self._store.schedules)

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect. As `SharedStore.close`, for the jobs of other tasks and threads. `close` is another name."""
        try:
            return await threaded(partial(self._store._close, drain, this_task()))
        except asyncio.CancelledError:  # it ends the wait, not the closing
            self._store._keeper.hurry()
            raise

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened_here:
            await self.aclose()


class AsyncSharedSchedules(AsyncSchedules):
    """The schedules of a database of a shared store, for asyncio: `AsyncSharedStore.schedules`."""

    def __init__(self, schedules: SharedSchedules) -> None:
        self._schedules = schedules

    async def _ask(self, verb: OfDatabase) -> Any:
        return await threaded(partial(self._schedules._ask, verb))


class AsyncSharedJob(JobCalls[V], AsyncEnds, JobFacts):
    """A job of a shared store, for asyncio: `async with job:`. It has the methods of `SharedJob`, awaited."""

    def __init__(self, job: SharedJob[V]) -> None:
        self._job = job
        self.value = job.value
        """The value that was put, decoded by the queue's codec."""
        self.deliveries = job.deliveries
        """How often the job was delivered, this delivery included: 1 at the first."""
        self.worker = job.worker
        """Name of the worker that it was delivered to."""

    async def _end(self, verb: Ending) -> bool:
        return await threaded(partial(self._job._end, verb))

    @property
    def state(self) -> str:
        """`open`; `acked`; `given` (back for a retry, or dead); or `lost` to another worker."""
        return self._job.state

    @property
    def _number(self) -> int:
        return self._job._number

    @property
    def _row(self) -> EntryRow:
        return self._job._row

    def __repr__(self) -> str:
        return repr(self._job)

    def __reduce__(self) -> Any:
        return self._job.__reduce__()  # raises

    async def __aenter__(self) -> Self:
        self._job._enter(this_task())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        # Asked here, in the task that was perhaps cancelled.
        ends_worker = error is not None and ends_the_worker(error)
        return await threaded(partial(self._job._exit, error, ends_worker))


class AsyncSharedQueue(QueueCalls[V], RunsTasks[AsyncSharedJob[V]], AsyncVerbs[V], AsyncClosing):
    """The queue of a shared store, for asyncio. `AsyncSharedStore.queue` or `tidelog.aqueue` makes it.

    It has the methods of `SharedQueue`, awaited. Any of them may raise the errors that `SharedQueue` lists.
    """

    _opened_here = False
    _passing = SHARED_PASSING

    def __init__(self, queue: SharedQueue[V], store: AsyncSharedStore) -> None:
        super().__init__(queue._options)
        self._queue = queue
        self._store = store

    def __reduce__(self) -> Any:
        return self._queue.__reduce__()  # raises

    @property
    def store(self) -> AsyncSharedStore:
        """The shared store that holds the queue."""
        return self._store

    async def _ask(self, verb: Verb) -> Any:
        return await threaded(partial(self._queue._ask, verb))

    async def _time(self) -> float:
        return await threaded(self._queue._time)

    async def put(
        self, value: V, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> AsyncHandle:
        """Put one job. As `SharedQueue.put`."""
        put = partial(self._queue.put, value, timeout=timeout, **options)
        return AsyncHandle.of(self, await threaded(put))

    def consume(
        self,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        *,
        time_limit: Duration | None = None,
        reraise: bool = False,
    ) -> AsyncSharedConsumer[V]:
        """Iterate over jobs with `async for`. As `SharedQueue.consume`."""
        found = self._queue.consume(worker, batch, block, time_limit=time_limit, reraise=reraise)
        return AsyncSharedConsumer(found)

    async def get(
        self, worker: str | None = None, block: Duration | None = None
    ) -> AsyncSharedJob[V] | None:
        """Fetch one job. As `SharedQueue.get`."""
        async for job in self.consume(worker, 1, block):
            return job
        return None

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect, if `tidelog.aqueue` connected for this queue; `close` is another name. As `SharedQueue.close`."""
        return await self._store.aclose(drain) if self._opened_here else 0

    close = aclose


class AsyncSharedConsumer(AsyncClosing, Generic[V]):
    """An iterator of jobs; `AsyncSharedQueue.consume` makes it. As `SharedConsumer`."""

    def __init__(self, consumer: SharedConsumer[V]) -> None:
        self._consumer = consumer
        self.worker = consumer.worker
        self._cancelled: asyncio.Future[SharedJob[V] | None] | None = None

    def __aiter__(self) -> AsyncIterator[AsyncSharedJob[V]]:
        return self

    async def __anext__(self) -> AsyncSharedJob[V]:
        # A call that was cancelled ends first, so that a caller who cancels many has one thread and one connection.
        while self._cancelled is not None and not self._cancelled.done():
            await asyncio.wait((self._cancelled,))
        call = Call()
        future = threaded(partial(self._consumer.following, this_task(), call=call))
        try:
            job = await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled = future
            future.add_done_callback(_give_back)
            threaded(partial(self._consumer.interrupt, call))
            raise
        if job is None:
            raise StopAsyncIteration
        return AsyncSharedJob(job)

    async def aclose(self) -> None:
        """Stop the iteration. As `SharedConsumer.close`."""
        await threaded(self._consumer.close)

    close = aclose


def _give_back(future: asyncio.Future[SharedJob | None]) -> None:
    """The call was cancelled: release the job that it was given, if any."""
    if future.cancelled() or future.exception() is not None:
        return
    job = future.result()
    if job is not None:
        threaded(partial(_released, job))


def _released(job: SharedJob) -> None:
    try:
        job.release()
    except TidelogError:
        pass  # it is delivered again when its lease ends
