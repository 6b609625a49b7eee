"""The queue of a shared store for asyncio. Each call runs in a thread of its own, so a slow server blocks no loop.

A call that is cancelled goes on in its thread. A job that such a call was given is released there, so nobody waits for
the end of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Generic

from tidelog.api.aclosing import AsyncClosing
from tidelog.api.queue.ablocks import end_block
from tidelog.api.queue.afaces import AsyncJobFace, AsyncQueueFace
from tidelog.api.queue.aschedules import AsyncSchedules
from tidelog.client.consumer import Call, SharedConsumer
from tidelog.client.job import Lease, Leased
from tidelog.client.remote import Remote, RemoteDatabase
from tidelog.client.threaded import by_thread, threaded
from tidelog.jobs.cancels import EndBlock
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.done import ACK
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.release import Release
from tidelog.store.commit.tasks import this_task
from tidelog.store.errors import TidelogError


class AsyncRemote:
    """See `AsyncBackend`.

    remote    the same for threads
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.options, self.opened_here = remote.options, remote.opened_here
        self.kind, self.passing = remote.kind, remote.passing
        self.puts_directly = False
        self.unpicklable = remote.unpicklable
        self.batches, self.new = remote.batches, remote.new

    ask, answer = by_thread("ask"), by_thread("answer")
    time, call = by_thread("time"), by_thread("call")
    put, put_some = by_thread("put"), by_thread("put_some")


class AsyncRemoteDatabase:
    """See `AsyncAsked`.

    remote    the same for threads
    """

    def __init__(self, remote: RemoteDatabase) -> None:
        self.remote = remote

    ask = by_thread("ask")


class AsyncSharedSchedules(AsyncSchedules):
    """The schedules of a database of a shared store, for asyncio: `AsyncSharedStore.schedules`."""


class AsyncSharedJob(Leased[T], AsyncJobFace[T]):
    """A job of a shared store, for asyncio: `async with job:`. It has the methods of `SharedJob`, awaited."""

    def _block_ender(self) -> EndBlock:
        return end_block

    async def _ack(self) -> bool:
        return await self._end(ACK)

    async def _end(self, verb: Ending) -> bool:
        return await threaded(partial(self._lease.end, verb))


class AsyncSharedConsumer(AsyncClosing, Generic[T]):
    """An iterator of jobs; `AsyncSharedQueue.consume` makes it. As `SharedConsumer`."""

    def __init__(self, backend: AsyncRemote, *given: Any) -> None:
        self._consumer = consumer = SharedConsumer[T](backend.remote, *given)
        self.worker = consumer.worker
        self._cancelled: asyncio.Future[Lease | None] | None = None

    def __aiter__(self) -> AsyncIterator[AsyncSharedJob[T]]:
        return self

    async def __anext__(self) -> AsyncSharedJob[T]:
        # A call that was cancelled ends first, so that a caller who cancels many has one thread and one connection.
        while self._cancelled is not None and not self._cancelled.done():
            await asyncio.wait((self._cancelled,))
        call = Call()
        future = threaded(partial(self._consumer.following, this_task(), call=call))
        try:
            found = await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled = future
            future.add_done_callback(_give_back)
            threaded(partial(self._consumer.interrupt, call))
            raise
        if found is None:
            raise StopAsyncIteration
        return AsyncSharedJob(found)

    async def aclose(self) -> None:
        """Stop the iteration. As `SharedConsumer.close`."""
        await threaded(self._consumer.close)

    close = aclose


def _give_back(future: asyncio.Future[Lease | None]) -> None:
    """The call was cancelled: release the job that it was given, if any."""
    if future.cancelled() or future.exception() is not None:
        return
    found = future.result()
    if found is not None:
        threaded(partial(_released, found))


def _released(found: Lease) -> None:
    try:
        found.end(Release())
    except TidelogError:
        pass  # it is delivered again when its lease ends


class AsyncSharedQueue(AsyncQueueFace[AsyncSharedJob[T], AsyncSharedConsumer[T], T]):
    """The queue of a shared store, for asyncio. `AsyncSharedStore.queue` or `tidelog.aqueue` makes it.

    It has the methods of `SharedQueue`, awaited. Any of them may raise the errors that `SharedQueue` lists.
    """

    _consumer = AsyncSharedConsumer

    def __init__(self, store: Any, remote: Remote) -> None:
        super().__init__(store, AsyncRemote(remote))
        remote.store = store
