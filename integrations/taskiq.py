"""A broker and a result backend for taskiq on a durable queue.

    from tidelog.integrations.taskiq import TidelogBroker, TidelogResultBackend

    broker = TidelogBroker("app-data").with_result_backend(TidelogResultBackend("app-data"))

    @broker.task
    async def send(to: str) -> None: ...

`taskiq worker module:broker` works on it in as many processes as wanted. A task is a job of the queue, acknowledged
when taskiq says so. If the worker's process dies, the job is delivered again. A task that raises is acknowledged, as
with taskiq's other brokers: its middlewares decide about retries. taskiq itself keeps the limit of time of the label
`timeout`.

    task = await send.kicker().with_labels(timeout=30, priority=3).kiq("ann")
    await broker.cancel(task.task_id)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, MutableMapping
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from taskiq import (
    AckableMessage,
    AsyncBroker,
    AsyncResultBackend,
    BrokerMessage,
    TaskiqMessage,
    TaskiqMiddleware,
    TaskiqResult,
)
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
# Labels of a task that are arguments of `put`, and the types that taskiq's labels may have lost.
LABELS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "delay": ("delay", float),
    "timeout": ("time_limit", float),
    "ttl": ("ttl", float),
    "priority": ("priority", int),
    **{name: (name, str) for name in ("key", "dedup_id", "dedup")},
}
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

    The labels `delay`, `ttl` (seconds), `priority`, `key`, `dedup_id` and `dedup` of a task are arguments of
    `Queue.put`, and so is `timeout`, as `time_limit`.
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
        # by the IDs of tasks; and those that were fetched, and cancelled before they began
        self._running = WeakValueDictionary[str, asyncio.Task[Any]]()
        self._revoked: set[str] = set()
        self.add_middlewares(_Running(self._running, self._revoked))

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
        given = {
            option: kind(message.labels[label])
            for label, (option, kind) in LABELS.items()
            if message.labels.get(label) is not None
        }
        await self.queue.put(message.message, **given)

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task that waits, is delayed, or runs: its asyncio task is cancelled, and its result is that error.
        One that is not async goes on in its thread. It looks through the jobs of the queue.

        Returns:
            False if there was nothing to cancel.
        """
        found = await self.queue.find(text=task_id)
        while True:
            for job in found.jobs:
                if job.state not in ("dead", "cancelled") and self._id_of(job.value) == task_id:
                    return bool(await self.queue.cancel(job.id))
            if not found.until:
                return False
            found = await self.queue.find(text=task_id, after=found.until)

    def _id_of(self, data: bytes) -> str:
        try:
            return str(self.formatter.loads(data).task_id)
        except Exception:  # of a formatter of the program
            return ""

    def _cancelled(self, loop: asyncio.AbstractEventLoop, job: Any) -> None:
        """A job that taskiq has was cancelled; any thread learns of it."""

        def end() -> None:
            self._held.discard(job)
            task_id = self._id_of(job.value)
            running = self._running.get(task_id)
            if running is None:
                self._revoked.add(task_id)
            else:
                running.cancel()

        loop.call_soon_threadsafe(end)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks that come."""
        consumer = self.queue.consume(self._worker)
        loop = asyncio.get_running_loop()
        try:
            async for job in consumer:
                self._held.add(job)
                job.on_cancel(partial(self._cancelled, loop, job))
                yield AckableMessage(data=job.value, ack=partial(self._ack, job))
        finally:
            await asyncio.shield(asyncio.ensure_future(consumer.aclose()))

    async def _ack(self, job: Any) -> None:
        await job.ack()
        self._held.discard(job)


class _Running(TaskiqMiddleware):
    """Knows the asyncio task of each of taskiq's that runs, and does not begin one that was cancelled."""

    def __init__(self, running: MutableMapping[str, asyncio.Task[Any]], revoked: set[str]) -> None:
        super().__init__()
        self._of, self._revoked = running, revoked

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """See `TaskiqMiddleware`."""
        if message.task_id in self._revoked:
            self._revoked.discard(message.task_id)
            raise asyncio.CancelledError
        task = asyncio.current_task()
        if task is not None:
            self._of[message.task_id] = task
        return message


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
