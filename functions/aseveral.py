"""Several queues as one, whose `arun` lets each worker take from all of them, for asyncio.

A worker fetches from the queue that comes next (`order.py`). One that has no job is left out until its waiter, a task
that waits for a job of this queue alone, gets one. The waiter gives the job to a worker that has nothing to do, or back
to its queue if all have: then the queue's turn comes as that of the others. So a fetch of an idle queue costs the busy
ones nothing, and a queue that cannot be fetched from stops no other.
"""

from __future__ import annotations

import asyncio  # asyncio
import logging

# threads: import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from tidelog.api.queue.running.by_tasks import RunsTasks
from tidelog.api.queue.running.plan import AGAIN_SECONDS, SHARED_PASSING
from tidelog.functions.order import Order
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DataError, ResponseError, TidelogError

# Errors of one queue, such as that its key holds no stream, or errors that pass.
FAULTS: Final = (*SHARED_PASSING, ResponseError)
JOIN_S: Final = 1.0  # that waiters have to end

log = logging.getLogger("tidelog.worker")


class _Feed:
    """One of the queues.

    ready     a fetch may find a job
    found     jobs that its waiter got, each for a worker that has nothing to do
    waiter    its consumer; None = it has not begun
    wanted    set: the waiter is to fetch
    trouble   why the last fetch failed; empty = it did not
    """

    def __init__(self, name: str, queue: Any) -> None:
        self.name, self.queue = name, queue
        self.ready = True
        self.found: deque[Any] = deque()
        self.waiter: Any = None
        self.wanted = asyncio.Event()  # asyncio
        # threads: self.wanted = threading.Event()
        self.trouble = ""

    def troubled(self, error: Exception) -> None:
        """A fetch failed. Say so once."""
        if str(error) != self.trouble:
            self.trouble = str(error)
            again = f"the others go on, and this one is tried again every {AGAIN_SECONDS:g} s"
            log.warning("queue %s: %s: %s", self.name, again, error, extra={"queue": self.name})


class AsyncSeveral(RunsTasks[Any]):
    """The queues of one store for the workers of one run, for asyncio.

    name       the names of all
    first      the first of them
    store      of all of them
    passing    errors after which the workers go on
    backends   of the queues
    """

    passing = FAULTS

    def __init__(self, queues: Mapping[str, Any], order: Order) -> None:
        self._feeds = {name: _Feed(name, queues[name]) for name in order.names}
        self._order, self._backend = order, self
        self.name = ", ".join(order.names)
        self._news = asyncio.Condition()  # asyncio
        self._over = asyncio.Event()  # asyncio
        self._waiters: set[asyncio.Task[None]] = set()  # asyncio
        # threads: self._news = threading.Condition()
        # threads: self._over = threading.Event()
        # threads: self._waiters: set[threading.Thread] = set()
        self.first = queues[order.names[0]]
        self.store = self.first.store
        self.backends = [queue.backend for queue in queues.values()]
        self._idle = 0  # workers that have nothing to do
        self._failure: BaseException | None = None

    def consume(
        self, worker: str | None = None, batch: int = 1, block: Duration | None = None, **given: Any
    ) -> AsyncTurns:
        """The jobs of all queues, for one worker. As `consume` of a queue. Raises DataError."""
        if batch != 1:
            raise DataError(f"workers of several queues fetch one job at a time, not {batch!r}")
        return AsyncTurns(self, worker, block, given)

    async def take(self, turns: AsyncTurns) -> Any:
        """The next job for a worker; None if none came in time, or the run ends. Raises what ended a waiter."""
        until = None if turns.wait is None else time.monotonic() + turns.wait
        empty: set[str] = set()
        await asyncio.sleep(0)  # asyncio: waiters run, also if no function ever waits
        while True:
            async with self._news:
                if self._failure is not None:
                    raise self._failure
                if self._over.is_set():
                    return None
                ready = [
                    feed.name
                    for feed in self._feeds.values()
                    if feed.ready and feed.name not in empty or feed.found
                ]
                name = self._order.next(ready)
                if name is None:
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._idle += 1
                    try:
                        await _within(self._news.wait, left)
                    finally:
                        self._idle -= 1
                    continue
                feed = self._feeds[name]
                job = feed.found.popleft() if feed.found else None
            if job is None:
                try:
                    job = await _fetched(feed.queue, turns)
                except FAULTS as error:
                    feed.troubled(error)
            async with self._news:
                if job is not None:
                    self._order.took(name, ready)
                    if self._idle:  # there may be more
                        self._news.notify()
                    return job
                if turns.wait == 0:
                    empty.add(name)
                else:
                    self._await(feed, turns)

    async def end(self) -> None:
        """Let the waiters end, and give back what no worker has taken."""
        async with self._news:
            self._over.set()
            self._news.notify_all()
            left = [job for feed in self._feeds.values() for job in feed.found]
            for feed in self._feeds.values():
                feed.found.clear()
                feed.wanted.set()
        for job in left:
            await _released(job)
        for feed in self._feeds.values():
            if feed.waiter is not None:
                await feed.waiter.aclose()
        if self._waiters:
            await asyncio.wait(self._waiters, timeout=JOIN_S)  # asyncio
            # threads: for waiter in self._waiters:
            # threads:     waiter.join(JOIN_S)

    # --- waiters

    def _await(self, feed: _Feed, turns: AsyncTurns) -> None:
        """The queue has no job: let its waiter get the next one."""
        feed.ready = False
        if feed.waiter is None:
            feed.waiter = feed.queue.consume(turns.worker_given, 1, None, **turns.given)
            waiter = asyncio.create_task(self._wait(feed), name=f"tidelog-{feed.name}")  # asyncio
            # threads: waiter = threading.Thread(target=self._wait, args=(feed,), daemon=True)
            # threads: waiter.start()
            self._waiters.add(waiter)
        feed.wanted.set()

    async def _wait(self, feed: _Feed) -> None:
        try:
            while not self._over.is_set():
                await feed.wanted.wait()
                feed.wanted.clear()
                if not self._over.is_set() and not await self._waited(feed):
                    break  # the store was closed
        except BaseException as error:
            if not self._over.is_set():
                self._failure = error
        async with self._news:
            self._over.set()
            self._news.notify_all()

    async def _waited(self, feed: _Feed) -> bool:
        """Get one job of a queue. False: there will be none any more."""
        if feed.trouble:
            await _within(self._over.wait, AGAIN_SECONDS)
        try:
            job = await anext(feed.waiter, None)
        except FAULTS as error:
            feed.troubled(error)
            feed.wanted.set()
            return True
        feed.trouble = ""
        if job is None:
            return False
        async with self._news:
            feed.ready = True
            promised = sum(len(each.found) for each in self._feeds.values())
            taken = self._idle > promised and not self._over.is_set()
            if taken:
                feed.found.append(job)
                self._news.notify()
        if not taken:
            await _released(job)
        return True


class AsyncTurns:
    """The jobs of several queues for one worker: an iterator, as a consumer of one queue.

    worker          its name at the first queue
    worker_given    the name that the caller gave
    wait            seconds without a job after which it ends; None = never
    given           further arguments of `consume`
    """

    def __init__(
        self, several: AsyncSeveral, worker: str | None, block: Any, given: dict[str, Any]
    ) -> None:
        self._several, self.worker_given, self.given = several, worker, given
        self.wait = patience("block", block)
        # it checks the arguments, too
        self.worker = several.first.consume(worker, 1, 0, **given).worker

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        job = await self._several.take(self)
        if job is None:
            raise StopAsyncIteration
        return job

    async def aclose(self) -> None:
        """End the run: its workers share the queues."""
        await self._several.end()


async def _fetched(queue: Any, turns: AsyncTurns) -> Any:
    """A job that a queue has now; None = it has none."""
    async for job in queue.consume(turns.worker_given, 1, 0, **turns.given):
        return job
    return None


async def _released(job: Any) -> None:
    """Give a job back, as if it had not been delivered."""
    try:
        await job.release()
    except TidelogError as error:
        # it is delivered again when its lease ends
        log.warning("job %s could not be given back: %s", job.id, error)


async def _within(wait: Callable[..., Any], seconds: float | None) -> None:
    """Wait for that long at most."""
    # threads: wait(seconds)
    try:  # asyncio
        await asyncio.wait_for(wait(), seconds)  # asyncio
    except TimeoutError:  # asyncio
        pass  # asyncio
