"""Job: one delivered job of an open store that a worker holds, for threads.

Generated from ajob.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from tidelog.api.queue.faces import JobFace
from tidelog.jobs.settling import JobBase, Settled
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.ending import Ending


class Job(JobBase[T], JobFace[T]):
    """A job for threads.

        with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            send(job.value)

    Each method that settles the job returns False, and does nothing, if its lease was lost or it is settled already;
    only `ack` of an acknowledged job returns True. Besides the errors that it names, it may raise StoreClosed,
    StorePoisoned, StoreDamaged, OutOfSpace, UnitTooLarge and OutcomeUnknown.
    """

    __slots__ = ()

    def _ack(self) -> bool:
        done, promise = self._acked()  # `_told` inlined, saves two calls
        if promise is not None:
            backend = self._workplace.backend
            if backend.fulfils_each or promise[1] > backend.core.durability.through(
                promise[0], backend.level
            ):
                backend.fulfil(promise)
        return done

    def _end(self, verb: Ending) -> bool:
        return self._told(self._settled(verb))

    def _told(self, settled: Settled) -> bool:
        done, promise = settled
        backend = self._workplace.backend
        if promise is not None and not backend.fulfilled(promise):
            backend.fulfil(promise)
        return done
