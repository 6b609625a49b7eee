"""A broker and a result backend for taskiq on a durable queue.

    from tidelog.integrations.taskiq import TidelogBroker, TidelogResultBackend

    broker = TidelogBroker("app-data").with_result_backend(TidelogResultBackend("app-data"))

    @broker.task
    async def send(to: str) -> None: ...

`taskiq worker module:broker` works on it in as many processes as wanted. A task is a job of the queue, acknowledged
when taskiq says so. If the worker's process dies, the job is delivered again. A task that raises is acknowledged, as
with taskiq's other brokers: its middlewares decide about retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final, TypeVar

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.exceptions import ResultGetError
from taskiq.serializers import JSONSerializer

from tidelog.api.aio import AsyncStore
from tidelog.api.aopening import aopen_store
from tidelog.client.aio import AsyncSharedStore
from tidelog.client.aopening import aconnect
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import TidelogError
from tidelog.store.opening import AnyPath

T = TypeVar("T")
PREFIX: Final = "taskiq:result:"
# labels of a task that are arguments of `put`
LABELS: Final = ("delay", "dedup_id")
DAY_S: Final = 86_400.0


class _Opened:
    """A store that is opened at the start of the broker or backend that owns it."""

    def __init__(self, path: AnyPath, fsync: str | None, shared: bool) -> None:
        self._path, self._fsync, self._shared = path, fsync, shared
        self._store: AsyncStore | AsyncSharedStore | None = None

    async def start(self) -> None:
        """Open or connect. A second call does nothing."""
        if self._store is None:
            if self._shared:
                self._store = await aconnect(self._path, fsync=self._fsync)
            else:
                self._store = await aopen_store(self._path, fsync=self._fsync or "always")

    @property
    def store(self) -> Any:
        """The open store."""
        if self._store is None:
            raise RuntimeError("call `await broker.startup()` first")
        return self._store

    async def end(self) -> None:
        """Close it."""
        store, self._store = self._store, None
        if store is not None:
            await store.aclose()


class TidelogBroker(AsyncBroker):
    """A broker of taskiq whose tasks are jobs of a durable queue.

    The labels `delay` (seconds) and `dedup_id` of a task are arguments of `Queue.put`.
    """

    def __init__(
        self,
        path: AnyPath,
        name: str = "taskiq",
        *,
        group: str = "workers",
        worker: str | None = None,
        retry_after: Duration = 30.0,
        max_deliveries: int = 5,
        max_depth: int | None = None,
        fsync: str | None = None,
        shared: bool = True,
    ) -> None:
        """A broker; it opens the store in `startup`.

        Args:
            path: Directory of the store, or the URL of a server.
            name: Name of the queue. For the options up to `max_depth` see `Store.queue`.
            worker: Name of the worker, as in `Queue.consume`.
            fsync: As in `tidelog.open`, where None is `always`; with `shared`, as in `tidelog.connect`.
            shared: Other processes use the store too, as `tidelog.connect` says. False: this one opens it for itself.
        """
        super().__init__()
        self._opened = _Opened(path, fsync, shared)
        self._name, self._worker = name, worker
        self._options: dict[str, Any] = {
            "group": group,
            "codec": "bytes",
            "retry_after": retry_after,
            "max_deliveries": max_deliveries,
            "max_depth": max_depth,
        }
        self._queue: Any = None
        self._held: set[Any] = set()  # jobs that taskiq has not acknowledged

    @property
    def queue(self) -> Any:
        """The queue, once the broker has started: `AsyncQueue` or `AsyncSharedQueue`."""
        if self._queue is None:
            self._queue = self._opened.store.queue(self._name, **self._options)
        return self._queue

    async def startup(self) -> None:
        """Open the store."""
        await self._opened.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Give back the tasks that were fetched and not finished, and close the store."""
        await super().shutdown()
        held, self._held = self._held, set()
        for job in held:
            try:
                await job.release()
            except TidelogError:
                pass  # it is delivered again when its lease ends
        self._queue = None
        await self._opened.end()

    async def kick(self, message: BrokerMessage) -> None:
        """Put a task."""
        labels = message.labels
        given = {name: labels[name] for name in LABELS if labels.get(name) is not None}
        if "delay" in given:
            given["delay"] = float(given["delay"])
        await self.queue.put(message.message, **given)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks that come."""
        consumer = self.queue.consume(self._worker)
        try:
            async for job in consumer:
                self._held.add(job)
                yield AckableMessage(data=job.value, ack=partial(self._ack, job))
        finally:
            await asyncio.shield(asyncio.ensure_future(consumer.aclose()))

    async def _ack(self, job: Any) -> None:
        await job.ack()
        self._held.discard(job)


class TidelogResultBackend(AsyncResultBackend[T]):
    """Results of tasks as strings that expire."""

    def __init__(
        self,
        path: AnyPath,
        *,
        keep: Duration = DAY_S,
        serializer: TaskiqSerializer | None = None,
        fsync: str | None = None,
        shared: bool = True,
    ) -> None:
        """A result backend; it opens the store in `startup`.

        Args:
            path: Directory of the store, or the URL of a server.
            keep: Seconds or a timedelta for which a result is kept.
            serializer: How results become bytes. Default: JSON.
            fsync: As in `tidelog.open`, where None is `always`; with `shared`, as in `tidelog.connect`.
            shared: As in `TidelogBroker`. A broker with `shared=False` cannot have this backend on the same store.
        """
        self._opened = _Opened(path, fsync, shared)
        self._keep_ms = max(1, round(seconds("keep", keep) * 1000))
        self._serializer = serializer or JSONSerializer()

    async def startup(self) -> None:
        """Open the store."""
        await self._opened.start()

    async def shutdown(self) -> None:
        """Close the store."""
        await self._opened.end()

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Store the result of a task."""
        data = self._serializer.dumpb(result.model_dump(mode="json"))
        await self._opened.store.set(PREFIX + task_id, data, px=self._keep_ms)

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether a task has a result."""
        return bool(await self._opened.store.exists(PREFIX + task_id))

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[T]:
        """The result of a task. Raises ResultGetError if there is none, or none any more."""
        data = await self._opened.store.get(PREFIX + task_id)
        if data is None:
            raise ResultGetError
        found: TaskiqResult[T] = TaskiqResult.model_validate(self._serializer.loadb(data))
        return found
