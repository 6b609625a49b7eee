"""AsyncJob: one delivered job of an open store that a worker holds, for asyncio."""

from __future__ import annotations

from tidelog.api.queue.afaces import AsyncJobFace
from tidelog.jobs.settling import JobBase, Settled
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.ending import Ending


# A change itself is made at once and only the disk is awaited, so a cancelled call has settled the job.  # asyncio
class AsyncJob(JobBase[T], AsyncJobFace[T]):
    """A job for asyncio.

        async with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            await send(job.value)

    Each method that settles the job returns False, and does nothing, if its lease was lost or it is settled already;
    only `ack` of an acknowledged job returns True. Besides the errors that it names, it may raise StoreClosed,
    StorePoisoned, StoreDamaged, OutOfSpace, UnitTooLarge and OutcomeUnknown.
    """

    __slots__ = ()

    async def _ack(self) -> bool:
        done, promise = self._acked()  # `_told` inlined, saves two calls
        if promise is not None:
            backend = self._workplace.backend
            if backend.fulfils_each or promise[1] > backend.core.durability.through(
                promise[0], backend.level
            ):
                await backend.fulfil(promise)
        return done

    async def _end(self, verb: Ending) -> bool:
        return await self._told(self._settled(verb))

    async def _told(self, settled: Settled) -> bool:
        done, promise = settled
        backend = self._workplace.backend
        if promise is not None and not backend.fulfilled(promise):
            await backend.fulfil(promise)
        return done
