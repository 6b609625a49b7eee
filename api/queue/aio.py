"""AsyncQueue: the durable queue for asyncio.

    async with tidelog.aqueue("mail-data", "mails") as mails:
        await mails.put({"to": "ann@example.org"})
        async for job in mails.consume():
            async with job:
                await send(job.value)

A change is made at once, in the loop's thread; only the disk, a job or room is awaited. So a cancelled call has done
either nothing or everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from tidelog.api.queue.adead import AsyncDead
from tidelog.api.queue.ahandle import AsyncHandle
from tidelog.api.queue.ajob import AsyncJob
from tidelog.api.queue.base import QueueBase
from tidelog.api.queue.consuming import ConsumerBase
from tidelog.api.queue.running.plan import make_plan
from tidelog.api.queue.running.tasks import run_tasks
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.jobs import delayed, looking, purging, rows
from tidelog.jobs.options import ranked
from tidelog.jobs.putting import Put, lifetime, put_once, put_values
from tidelog.jobs.rows import VALUE, Failure, WaitingJob
from tidelog.jobs.stats import Stats
from tidelog.jobs.typed import T
from tidelog.jobs.work.fetch import NEXT
from tidelog.jobs.work.shared import Delivery
from tidelog.store.commit.core import Answer
from tidelog.store.commit.tasks import TaskCaller, this_task
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DecodeError, EncodeError, StoreClosed, from_command
from tidelog.store.lifetime import DRAIN_SECONDS


class AsyncQueue(QueueBase[T]):
    """A durable queue of an open store, for asyncio. `AsyncStore.queue` or `tidelog.aqueue` makes it.

    It has the methods of `Queue`, awaited, and raises the same errors. A cancelled call has done either nothing or
    everything.
    """

    _opened_here = False

    @property
    def dead(self) -> AsyncDead:
        """The dead jobs: those that were given up."""
        return AsyncDead(self)

    # --- putting

    async def put(
        self,
        value: T,
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
        """Put one job. As `Queue.put`."""
        plain = delay is None and at is None and ttl is None and priority == 0
        if plain and dedup_id is None and timeout is None and not self._bounded:
            data = rows.encode_value(self._options, value)
            row = (
                (VALUE, data)
                if headers is None and key is None
                else rows.job_row(data, headers, 0, key)
            )
            try:
                effect, log, lsn = self._core.add(self._db, self._key, row)
            except CommandError as error:
                raise from_command(error) from None
            await self._face._hold((log, lsn, True))
            return AsyncHandle.of(self, f"{effect[3]}-{effect[4]}")
        if dedup_id is None and not plain:
            unbounded = timeout is None and not self._bounded
            aside = self._put_aside(value, headers, delay, at, ttl, priority, key, unbounded)
            if aside is not None:
                id, promise = aside
                await self._face._hold(promise)
                return AsyncHandle.of(self, id)
        put = self.new(
            value,
            dedup_id=dedup_id,
            headers=headers,
            delay=delay,
            at=at,
            ttl=ttl,
            priority=priority,
            key=key,
        )
        return AsyncHandle.of(self, await self._put_slowly(put, timeout))

    async def _put_slowly(self, put: Put, timeout: Duration | None) -> str:
        core, wait = self._core, patience("timeout", timeout)
        deadline = None if wait is None else core.monotonic() + wait
        while True:
            answer, caller = put_once(self._engine, put, None if wait == 0 else TaskCaller)
            if answer is not None:
                reply, promise = answer
                await self._face._hold(promise)
                return str(reply)
            await self._sleep(caller, deadline, 0)

    async def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. As `Queue.put_many`."""
        core, wait = self._core, patience("timeout", timeout)
        deadline = None if wait is None else core.monotonic() + wait
        waits = None if wait == 0 else TaskCaller
        total = 0
        due, left = self._engine.due_at(delay, at), lifetime(ttl)
        ranked(priority)
        rows.tail_of(0, key)
        for batch, error in self._batches(values):
            while batch:
                stored, promise, caller = put_values(
                    self._engine, batch, due, left, priority, key, waits
                )
                if stored:
                    await self._face._hold(promise)
                    total += stored
                    batch = batch[stored:]
                else:
                    await self._sleep(caller, deadline, total)
            if error is not None:
                if isinstance(error, EncodeError):
                    error.stored = total
                raise error
            await asyncio.sleep(0)  # other tasks run between two batches
        return total

    async def _sleep(self, caller: Any, deadline: float | None, stored: int) -> None:
        """Sleep until there may be room. Raises QueueFull."""
        try:
            if caller is None or (wait := self._engine.nap(deadline)) == 0:
                raise self._engine.full(stored)
            await caller.sleep(wait)
        finally:
            self._engine.shared.room.pop(caller, None)

    # --- consuming

    def consume(
        self,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        *,
        time_limit: Duration | None = None,
        reraise: bool = False,
    ) -> AsyncConsumer[T]:
        """Iterate over jobs with `async for`. As `Queue.consume`."""
        return AsyncConsumer(self, worker, batch, block, time_limit, reraise)

    async def get(
        self, worker: str | None = None, block: Duration | None = None
    ) -> AsyncJob[T] | None:
        """Fetch one job. As `Queue.get`."""
        async for job in self.consume(worker, 1, block):
            return job
        return None

    async def subscribe(self) -> None:
        """Create the group now if it is missing. As `Queue.subscribe`."""
        await self._face._hold(self._engine.subscribe())

    async def arun(
        self,
        handler: Callable[[AsyncJob[T]], Awaitable[object]],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
    ) -> int:
        """Let tasks take jobs, until SIGTERM or Ctrl-C comes. As `Queue.run`.

        The handler is an async function. The handlers that run when the drain is over are cancelled. If this call is
        cancelled, they are cancelled at once.
        """
        return await run_tasks(
            make_plan(
                *(self, handler, workers, drain),
                asynchronous=True,
                worker=worker,
                batch=batch,
                block=block,
                time_limit=time_limit,
                results=results,
            )
        )

    # --- looking

    async def stats(self) -> Stats:
        """Figures about the queue now."""
        return await self._told(looking.stats(self._engine))  # type: ignore[no-any-return]

    async def peek(self, count: int = 10, *, scheduled: bool = False) -> list[WaitingJob]:
        """The next jobs that are due, retries first; or the next delayed ones. As `Queue.peek`."""
        return self._waiting_jobs(await self._told(looking.peek(self._engine, count, scheduled)))

    async def failures(self, job_id: str | None = None, count: int = 100) -> list[Failure]:
        """Recorded failures, newest first. As `Queue.failures`."""
        return await self._told(looking.failures(self._engine, job_id, count))  # type: ignore[no-any-return]

    async def _told(self, answer: Answer) -> Any:
        found, promise = answer
        await self._face._hold(promise)
        return found

    # --- results

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job. As `Queue.result`."""
        question = looking.outcome(self._engine, job_id, patience("timeout", timeout))
        outcome, promise = self._core.run(self._db, question, TaskCaller)
        if outcome.__class__ is Waiter:
            outcome, promise = await self._face._wait(outcome)
        await self._face._hold(promise)
        return self._result(job_id, outcome)

    # --- delayed jobs

    async def cancel(self, job_id: str) -> bool:
        """Delete a delayed job. As `Queue.cancel`."""
        return bool(await self._told(delayed.cancel(self._engine, job_id)))

    async def move(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Make a delayed job due at another time. As `Queue.move`."""
        return bool(await self._told(delayed.move(self._engine, job_id, delay, at)))

    # --- the rest

    async def purge(self) -> int:
        """Delete every job that is not in flight. As `Queue.purge`."""
        total, more = 0, True
        while more:
            dropped, promise, more = purging.purge_some(self._engine)
            await self._face._hold(promise)
            total += dropped
            await asyncio.sleep(0)
        return total

    async def aclose(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store if `tidelog.aqueue` opened it for this queue; `close` is another name. As `Queue.close`."""
        return int(await self.store.aclose(drain)) if self._opened_here else 0

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


class AsyncConsumer(ConsumerBase[T]):
    """An asynchronous iterator of jobs; `AsyncQueue.consume` makes it.

    It is closed when it ends, by `aclose`, or as an async context manager. Then jobs that were fetched but not handed
    out go back to the queue at once.
    """

    _queue: AsyncQueue[T]
    _caller_class = TaskCaller

    def __aiter__(self) -> AsyncIterator[AsyncJob[T]]:
        return self

    async def __anext__(self) -> AsyncJob[T]:
        while True:
            delivery = self._delivery
            if delivery is None or not delivery.jobs:
                delivery = None if self._closed else await self._fetch()
                if delivery is None or self._closed:
                    if delivery is not None:  # another task closed it meanwhile
                        self._engine.shared.leave(delivery)
                        self._delivery = delivery
                    await self.aclose()
                    raise StopAsyncIteration
            try:
                entry = delivery.jobs.pop()
            except IndexError:
                # the list is empty: another thread is closing the store and returned the jobs to the queue
                continue
            me = this_task()
            if delivery.holder != me:
                delivery.taken(entry[0], me)
            if not delivery.gathers:
                self._delivery = None  # only the job keeps the delivery alive
            row = entry[1]
            queue = self._queue
            try:
                value = queue._decode(row[1]) if row[0] == VALUE else queue._value(row)
            except Exception:
                try:
                    value = queue._value(row)
                except DecodeError as error:
                    await AsyncJob(self._place, delivery, entry, None).fail(error)
                    continue
            return AsyncJob(self._place, delivery, entry, value)

    async def _fetch(self) -> Delivery | None:
        queue = self._queue
        core = queue._core
        while True:
            request = self._request()
            try:
                reply, promise = core.decided(queue._db, request, self._caller)
                if reply.__class__ is Waiter:
                    self._park(parked := reply)
                    try:
                        reply, promise = await queue._face._wait(parked, request.tell_deaths)
                    finally:
                        self._parked.discard(parked)
                if not queue._face._holds_already(promise):
                    await queue._face._hold(promise)
            except CommandError as error:
                self._broke(request)
                raise from_command(error) from None
            except BaseException:
                self._broke(request)
                raise
            if reply is NEXT or (got := self._got(request, reply)):
                return self._take(request)
            if got is False:
                return None

    async def aclose(self) -> None:
        """Stop the iteration, also of a task that waits for a job. Closing twice is allowed."""
        try:
            promise = self._give_back()
            if promise is not None:
                await self._queue._face._hold(promise)
        except StoreClosed:
            # Some acknowledgements could not be written. Their jobs will be delivered again.
            pass

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
