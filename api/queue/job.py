"""Job: one delivered job that a worker holds, for threads.

Generated from ajob.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import Any, Self

from tidelog.api.queue.ends import Ends
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.jobs.putting import Put
from tidelog.jobs.settling import JobBase, Settled
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.done import DoneWith
from tidelog.jobs.verbs.done_and import DoneAnd
from tidelog.jobs.verbs.ending import ACKED, OPEN, Ending
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.durations import Duration
from tidelog.store.errors import TidelogError


class Job(JobBase[T], Ends):
    """A job for threads.

        with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            send(job.value)

    Each method that settles the job returns False, and does nothing, if its lease was lost or it is settled already;
    only `ack` of an acknowledged job returns True. Besides the errors that it names, it may raise StoreClosed,
    StorePoisoned, StoreDamaged, OutOfSpace, UnitTooLarge and OutcomeUnknown.
    """

    __slots__ = ()

    def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done.

            job.ack(result={"pages": 12})     # the caller who put the job gets it from `Handle.result`

        Args:
            result: Anything that the codec encodes, None too, stored in the same unit. Without it, the job has none.
            ttl: Seconds or a timedelta after which the result is deleted.

        Returns:
            True once the acknowledgement has reached the queue's durability level. False if the lease was lost; then
            no result is stored.

        Raises:
            EncodeError: The codec cannot encode the result, or it is too large (PayloadTooLarge); the job stays open.
            DataError: `ttl` is invalid.
        """
        if result is NO_RESULT:
            return self._told(self._ack())
        return self._end(DoneWith.of(self._engine.options, result, ttl))

    def done_and(self, *puts: Put) -> bool:
        """Mark the job as done and put other jobs, in one unit: both happen or neither.

            job.done_and(invoices.new({"order": 7}), mails.new({"to": "ann"}))

        Args:
            *puts: Jobs that `queue.new` made, for queues of the same store and database.

        Returns:
            False if the lease was lost; then nothing was put.

        Raises:
            DataError: An argument is no such job.
            QueueFull: A bounded queue has no room; the job stays open.
        """
        return self._end(DoneAnd.of(self._engine, puts))

    def _end(self, verb: Ending) -> bool:
        return self._told(self._settled(verb))

    def _told(self, settled: Settled) -> bool:
        done, promise = settled
        face = self._place.face
        if promise is not None and not face._holds_already(promise):
            face._hold(promise)
        return done

    def __enter__(self) -> Self:
        me = get_ident()
        if self._delivery.holder != me:  # another thread may have taken it
            self._delivery.taken(self._entry[0], me)
        return self

    def __exit__(
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
                elif not self._told(self._ack()):
                    self._was_lost()
            return False
        if self._state is OPEN:
            try:
                self._told(self._leave(error, ends_the_worker(error)))
            except TidelogError as failure:
                if isinstance(error, Exception):
                    raise
                self._kept(failure)  # the interrupt propagates
        else:
            self._too_late(error)
        return self._swallows(error)
