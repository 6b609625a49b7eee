"""AsyncJob: one delivered job that a worker holds, for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from tidelog.api.queue.leaving import ends_the_worker
from tidelog.jobs.putting import Put
from tidelog.jobs.settling import ACKED, OPEN, JobBase, Settled
from tidelog.jobs.typed import T
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.commit.tasks import this_task
from tidelog.store.durations import Duration
from tidelog.store.errors import TidelogError


class AsyncJob(JobBase[T]):
    """A job for asyncio: `async with job:`. It has the methods of `Job`, awaited.

    The change itself is made at once and only the disk is awaited, so a cancelled call has settled the job.
    """

    __slots__ = ()

    async def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done. As `Job.ack`."""
        return await self._told(self._ack() if result is NO_RESULT else self._ack_with(result, ttl))

    async def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. As `Job.nack`."""
        return await self._told(self._nack(reason, delay))

    async def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job. As `Job.fail`."""
        return await self._told(self._fail(reason))

    async def release(self) -> bool:
        """Give the job back as if it had not been delivered. As `Job.release`."""
        return await self._told(self._release())

    async def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while. As `Job.extend`."""
        return await self._told(self._extend(seconds))

    async def done_and(self, *puts: Put) -> bool:
        """Mark the job as done and put other jobs, in one unit. As `Job.done_and`."""
        return await self._told(self._done_and(puts))

    async def _told(self, settled: Settled) -> bool:
        done, promise = settled
        face = self._place.face
        if promise is not None and not face._holds_already(promise):
            await face._hold(promise)
        return done

    async def __aenter__(self) -> Self:
        me = this_task()
        if self._delivery.holder != me:  # another task may have taken it
            self._delivery.taken(self._entry[0], me)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            if self._state is OPEN:
                delivery = self._delivery
                if delivery.gathers:  # written with the rest of the batch
                    delivery.finished.append(self._entry[0])
                    self._state = ACKED
                    leases = self._place.engine.leases
                    if not leases.armed:
                        leases.arm()
                elif not await self._told(self._ack()):
                    self._was_lost()
            return False
        if self._state is OPEN:
            try:
                await self._told(self._leave(error, ends_the_worker(error)))
            except TidelogError as failure:
                if isinstance(error, Exception):
                    raise
                self._kept(failure)  # the interrupt propagates
        else:
            self._too_late(error)
        return self._swallows(error)
