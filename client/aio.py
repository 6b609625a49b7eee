"""The faces of a shared store for asyncio. Each call runs in a thread of its own, so a slow server blocks no loop.

A call that is cancelled goes on in its thread. A job that such a call was given is released there, so nobody waits for
the end of its lease.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

from tidelog.api import shapes
from tidelog.api.async_methods import AsyncMethods
from tidelog.api.encode import encode
from tidelog.api.idrange import IdRange
from tidelog.api.pipeline import call_words
from tidelog.api.queue.ahandle import AsyncHandle
from tidelog.api.queue.choosing import Ids, Jobs, Where
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.api.queue.running.plan import SHARED_PASSING, make_plan
from tidelog.api.queue.running.tasks import run_tasks
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, PatternT, TextT
from tidelog.client.apipeline import AsyncSharedPipeline
from tidelog.client.dead import FIRST
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.missing import answers_missing
from tidelog.client.queue import SharedConsumer, SharedQueue
from tidelog.client.schedules import SharedSchedules
from tidelog.client.store import FSYNCED, SharedStore
from tidelog.client.threaded import threaded
from tidelog.client.wire import session_free
from tidelog.jobs.rows import DeadJob, Failure, WaitingJob
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.stats import Stats
from tidelog.jobs.typed import T as V
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.commit.tasks import this_task
from tidelog.store.durations import Duration
from tidelog.store.errors import TidelogError, WatchError
from tidelog.store.lifetime import DRAIN_SECONDS

if TYPE_CHECKING:
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.typed import QueueOptions, Typed
    from tidelog.snapshot.portable import Snapshot

T = TypeVar("T")


@answers_missing
class AsyncSharedStore(AsyncMethods[TextT]):
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

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run any command, given as words. As `SharedStore.execute_command`."""
        words = session_free(call_words(args))
        return await self._call(shapes.shape_of(encode(args[0]), options), words)

    async def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit. As `SharedStore.xadd_many`."""
        return await threaded(partial(self._store.xadd_many, key, rows))

    async def scan_iter(
        self,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> AsyncIterator[TextT]:
        """Iterate over the names of all keys with `async for`. As `SharedStore.scan_iter`."""
        cursor = -1
        while cursor:
            cursor, names = await self.scan(max(cursor, 0), match, count, _type)
            for name in names:
                yield name

    async def ping(self) -> bool:
        """True while a server of the store answers."""
        return await threaded(self._store.ping)

    async def time(self) -> tuple[int, int]:
        """The store's clock: `(Unix seconds, microseconds of the second)`."""
        return await threaded(self._store.time)

    # --- pipelines and transactions

    def pipeline(
        self, transaction: bool = True, shard_hint: str | None = None
    ) -> AsyncSharedPipeline:
        """A pipeline; it queues commands, and `execute` is awaited. As `SharedStore.pipeline`."""
        return AsyncSharedPipeline(self._store.pipeline(transaction, shard_hint))

    async def transaction(
        self,
        func: Callable[[AsyncSharedPipeline], Any],
        *watches: KeyT,
        shard_hint: str | None = None,
        value_from_callable: bool = False,
        watch_delay: float | None = None,
    ) -> Any:
        """Run a transaction that depends on what it reads. As `SharedStore.transaction`.

        `func` may be a coroutine function.
        """
        async with self.pipeline(True) as pipe:
            while True:
                try:
                    if watches:
                        await pipe.watch(*watches)
                    value = func(pipe)
                    if inspect.isawaitable(value):
                        value = await value
                    results = await pipe.execute()
                    return value if value_from_callable else results
                except WatchError:
                    if watch_delay:
                        await asyncio.sleep(watch_delay)

    # --- the store itself

    async def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The figures of INFO. As `SharedStore.info`."""
        return await threaded(partial(self._store.info, section, *args))

    async def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The options of the server that match a glob pattern. As `SharedStore.config_get`."""
        return await threaded(partial(self._store.config_get, pattern, *args))

    async def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change options of the server until it ends. As `SharedStore.config_set`."""
        return await threaded(partial(self._store.config_set, name, value, *args))

    async def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. As `SharedStore.checkpoint`."""
        return await threaded(self._store.checkpoint)

    async def barrier(
        self,
        level: str = FSYNCED,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until everything written so far has reached a level. As `SharedStore.barrier`."""
        await threaded(
            partial(self._store.barrier, level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        )

    async def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state. As `SharedStore.snapshot`."""
        return await threaded(self._store.snapshot)

    async def promote(self) -> None:
        """Make a follower a leader. As `SharedStore.promote`."""
        await threaded(self._store.promote)

    async def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until the server has applied a write that was made elsewhere. As `SharedStore.wait_for`."""
        await threaded(partial(self._store.wait_for, token, timeout))

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
            ),
            self,
        )

    async def schedule(
        self,
        name: str,
        cron: str | None = None,
        *,
        queue: str,
        every: Duration | None = None,
        value: Any = None,
        tz: str | None = None,
        catch_up: str = "one",
        codec: Any = "json",
        priority: int = 0,
    ) -> Schedule:
        """Put a job into a queue again and again. As `SharedStore.schedule`."""
        make = partial(self._store.schedule, name, cron, queue=queue, every=every, value=value)
        make = partial(make, tz=tz, catch_up=catch_up, codec=codec, priority=priority)
        return await threaded(make)

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


class AsyncSharedSchedules:
    """The schedules of a database of a shared store, for asyncio: `AsyncSharedStore.schedules`."""

    def __init__(self, schedules: SharedSchedules) -> None:
        self._schedules = schedules

    async def list(self) -> list[Schedule]:
        """All schedules, by name."""
        return await threaded(self._schedules.list)

    async def pause(self, name: str) -> bool:
        """Stop the ticks of a schedule. As `SharedSchedules.pause`."""
        return await threaded(partial(self._schedules.pause, name))

    async def resume(self, name: str) -> bool:
        """End a pause. As `SharedSchedules.resume`."""
        return await threaded(partial(self._schedules.resume, name))

    async def remove(self, name: str) -> bool:
        """Delete a schedule. As `SharedSchedules.remove`."""
        return await threaded(partial(self._schedules.remove, name))


class AsyncSharedQueue(Generic[V]):
    """The queue of a shared store, for asyncio. `AsyncSharedStore.queue` or `tidelog.aqueue` makes it.

    It has the methods of `SharedQueue`, awaited. Any of them may raise the errors that `SharedQueue` lists.
    """

    _opened_here = False

    def __init__(self, queue: SharedQueue[V], store: AsyncSharedStore) -> None:
        self._queue = queue
        self._store = store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, group {self.group!r}>"

    def __reduce__(self) -> Any:
        return self._queue.__reduce__()  # raises

    @property
    def name(self) -> str:
        """Name of the queue, the key of its stream."""
        return self._queue.name

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._queue.group

    @property
    def store(self) -> AsyncSharedStore:
        """The shared store that holds the queue."""
        return self._store

    @property
    def dead(self) -> AsyncSharedDead:
        """The dead jobs: those that were given up."""
        return AsyncSharedDead(self._queue)

    def new(
        self,
        value: V,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> SharedPut:
        """A job for `AsyncSharedJob.done_and` to put. As `SharedQueue.new`."""
        new = partial(self._queue.new, value, dedup_id=dedup_id, headers=headers)
        return new(delay=delay, at=at, ttl=ttl, priority=priority, key=key)

    async def put(
        self,
        value: V,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> AsyncHandle:
        """Put one job. As `SharedQueue.put`."""
        put = partial(self._queue.put, value, dedup_id=dedup_id, headers=headers, timeout=timeout)
        put = partial(put, delay=delay, at=at, ttl=ttl, priority=priority, key=key)
        return AsyncHandle.of(self, await threaded(put))

    async def put_many(
        self,
        values: Iterable[V],
        *,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> int:
        """Put many jobs. As `SharedQueue.put_many`."""
        put = partial(self._queue.put_many, values, timeout=timeout)
        put = partial(put, delay=delay, at=at, ttl=ttl, priority=priority, key=key)
        return await threaded(put)

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job. As `SharedQueue.result`."""
        return await threaded(partial(self._queue.result, job_id, timeout))

    async def cancel(self, job_id: str) -> bool:
        """Delete a delayed job. As `SharedQueue.cancel`."""
        return await threaded(partial(self._queue.cancel, job_id))

    async def move(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Make a delayed job due at another time. As `SharedQueue.move`."""
        return await threaded(partial(self._queue.move, job_id, delay=delay, at=at))

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

    async def subscribe(self) -> None:
        """Create the group now if it is missing. As `SharedQueue.subscribe`."""
        await threaded(self._queue.subscribe)

    async def arun(
        self,
        handler: Callable[[AsyncSharedJob[V]], Awaitable[object]],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
    ) -> int:
        """Let tasks take jobs, until SIGTERM or Ctrl-C comes, as `AsyncQueue.arun` does. As `SharedQueue.run`."""
        return await run_tasks(
            make_plan(
                *(self, handler, workers, drain),
                asynchronous=True,
                passing=SHARED_PASSING,
                worker=worker,
                batch=batch,
                block=block,
                time_limit=time_limit,
                results=results,
            )
        )

    async def stats(self) -> Stats:
        """Figures about the queue now."""
        return await threaded(self._queue.stats)

    async def peek(self, count: int = 10, *, scheduled: bool = False) -> list[WaitingJob]:
        """The next jobs that are due, retries first. As `SharedQueue.peek`."""
        return await threaded(partial(self._queue.peek, count, scheduled=scheduled))

    async def failures(self, job_id: str | None = None, count: int = 100) -> list[Failure]:
        """Recorded failures, newest first. As `SharedQueue.failures`."""
        return await threaded(partial(self._queue.failures, job_id, count))

    async def purge(self) -> int:
        """Delete every job that is not in flight. As `SharedQueue.purge`."""
        return await threaded(self._queue.purge)

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect, if `tidelog.aqueue` connected for this queue; `close` is another name. As `SharedQueue.close`."""
        return await self._store.aclose(drain) if self._opened_here else 0

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncSharedConsumer(Generic[V]):
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
        future = threaded(partial(self._consumer.following, this_task()))
        try:
            job = await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled = future
            future.add_done_callback(_give_back)
            threaded(self._consumer.interrupt)
            raise
        if job is None:
            raise StopAsyncIteration
        return AsyncSharedJob(job)

    async def aclose(self) -> None:
        """Stop the iteration. As `SharedConsumer.close`."""
        await threaded(self._consumer.close)

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


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


class AsyncSharedJob(Generic[V]):
    """A job of a shared store, for asyncio: `async with job:`. It has the methods of `SharedJob`, awaited."""

    def __init__(self, job: SharedJob[V]) -> None:
        self._job = job
        self.value = job.value
        """The value that was put, decoded by the queue's codec."""
        self.id = job.id
        """The job's ID, `ms-seq`."""
        self.deliveries = job.deliveries
        """How often the job was delivered, this delivery included: 1 at the first."""
        self.worker = job.worker
        """Name of the worker that it was delivered to."""

    def __repr__(self) -> str:
        return repr(self._job)

    def __reduce__(self) -> Any:
        return self._job.__reduce__()  # raises

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were put with it."""
        return self._job.headers

    @property
    def origin(self) -> str | None:
        """The ID that `put` returned, if a delayed or a redriven job has another one since; None for any other."""
        return self._job.origin

    @property
    def priority(self) -> int:
        """The priority that it was put with, from 0 to 9."""
        return self._job.priority

    @property
    def key(self) -> str | None:
        """The key that it was put with."""
        return self._job.key

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return self._job.enqueued_at

    @property
    def state(self) -> str:
        """`open`; `acked`; `given` (back for a retry, or dead); or `lost` to another worker."""
        return self._job.state

    async def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done. As `SharedJob.ack`."""
        return await threaded(partial(self._job.ack, result, ttl=ttl))

    async def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. As `SharedJob.nack`."""
        return await threaded(partial(self._job.nack, reason, delay))

    async def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job. As `SharedJob.fail`."""
        return await threaded(partial(self._job.fail, reason))

    async def release(self) -> bool:
        """Give the job back as if it had not been delivered. As `SharedJob.release`."""
        return await threaded(self._job.release)

    async def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while. As `SharedJob.extend`."""
        return await threaded(partial(self._job.extend, seconds))

    async def done_and(self, *puts: SharedPut) -> bool:
        """Mark the job as done and put other jobs, in one unit. As `SharedJob.done_and`."""
        return await threaded(partial(self._job.done_and, *puts))

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


class AsyncSharedDead:
    """The dead jobs of a shared queue, for asyncio. Iterate over them with `async for`, oldest first.

    It has the methods of `SharedDead`, awaited.
    """

    def __init__(self, queue: SharedQueue) -> None:
        self._dead = queue.dead

    async def __aiter__(self) -> AsyncIterator[DeadJob]:
        start: bytes | None = FIRST
        while start is not None:
            page, start = await threaded(partial(self._dead._following, start))
            for job in page:
                yield job

    async def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first. As `SharedDead.list`."""
        return await threaded(partial(self._dead.list, count, where))

    async def count(self) -> int:
        """Number of dead jobs."""
        return await threaded(self._dead.count)

    async def get(self, id: str) -> DeadJob | None:
        """Look up one dead job. As `SharedDead.get`."""
        return await threaded(partial(self._dead.get, id))

    async def redrive(
        self, ids: Ids = None, *, where: Where | None = None, dry_run: bool = False
    ) -> int:
        """Put dead jobs back into the queue. As `SharedDead.redrive`."""
        return await threaded(partial(self._dead.redrive, ids, where=where, dry_run=dry_run))

    async def purge(
        self, ids: Ids = None, *, where: Where | None = None, older_than: Duration | None = None
    ) -> int:
        """Delete dead jobs. As `SharedDead.purge`."""
        return await threaded(partial(self._dead.purge, ids, where=where, older_than=older_than))
