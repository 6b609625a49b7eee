"""AsyncSharedStore: the face of a shared store for asyncio.

Each call runs in a thread of its own, so a slow server blocks no loop. A call that is cancelled goes on in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from tidelog.api.aclosing import AsyncClosing
from tidelog.api.acompound import AsyncCompound
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT, TextT
from tidelog.client.apipeline import AsyncSharedPipeline
from tidelog.client.aqueue import (
    AsyncRemoteDatabase,
    AsyncSharedQueue,
    AsyncSharedSchedules,
)
from tidelog.client.base import inside
from tidelog.client.calls import StoreCalls
from tidelog.client.missing import answers_missing
from tidelog.client.remote import Remote, RemoteDatabase
from tidelog.client.store import SharedStore
from tidelog.client.threaded import threaded
from tidelog.jobs.options import make_options
from tidelog.store.commit.tasks import this_task
from tidelog.store.durations import Duration
from tidelog.store.lifetime import DRAIN_SECONDS

if TYPE_CHECKING:
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.typed import QueueOptions, Typed

T = TypeVar("T")


@answers_missing
class AsyncSharedStore(StoreCalls[TextT], AsyncCompound[AsyncSharedPipeline, TextT], AsyncClosing):
    """A store that another process serves, for asyncio. `tidelog.aconnect` makes it.

    It has the methods of `SharedStore`, awaited. Any of them may raise the errors that `SharedStore` lists.
    """

    def __init__(self, store: SharedStore[TextT], opened_here: bool = False) -> None:
        self._store = store
        self._opened_here = opened_here

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
        **options: Unpack[QueueOptions],
    ) -> AsyncSharedQueue[Any]:
        """A durable queue in this store. As `SharedStore.queue`."""
        made = make_options(name, group, codec=codec, **options)
        return AsyncSharedQueue(self, Remote(inside(self._store), made, codec))

    @property
    def schedules(self) -> AsyncSharedSchedules:
        """The schedules of this database. As `SharedStore.schedules`, awaited."""
        database = RemoteDatabase(inside(self._store))
        return AsyncSharedSchedules(AsyncRemoteDatabase(database))

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect. As `SharedStore.close`, for the jobs of other tasks and threads. `close` is another name."""
        try:
            return await threaded(partial(self._store._close, drain, this_task()))
        except asyncio.CancelledError:  # it ends the wait, not the closing
            self._store._keeper.hurry()
            raise

    close = aclose
