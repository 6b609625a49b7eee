"""SharedJob: one job that this process holds of a shared store, for threads."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self

from tidelog.api.queue.ends import Ends
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.client.keeper import Queued
from tidelog.engine.api import EntryRow
from tidelog.jobs.delivered import Delivered, log
from tidelog.jobs.raised import ending_of
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.done import ACK, Done, DoneWith
from tidelog.jobs.verbs.done_and import AckAnd
from tidelog.jobs.verbs.ending import ACKED, GIVEN, LOST, OPEN, Ending
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.verb import all_needs
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError, OutcomeUnknown, TidelogError


class SharedPut(NamedTuple):
    """A job that `SharedJob.done_and` is to put. `SharedQueue.new` makes it."""

    queue: Queued
    request: PutJob


class SharedJob(Ends, Delivered, Generic[T]):
    """A job of a shared store. It has the properties and methods of `Job`.

        with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            send(job.value)

    If the connection breaks while a method settles the job, the call is repeated. If it then turns out that this
    process does not hold the job any more, the method raises OutcomeUnknown: the first call may have settled it.
    """

    def __init__(
        self,
        queue: Queued,
        worker: str,
        entry: tuple[int, int, EntryRow],
        value: T,
        *,
        gathers: bool = False,
        reraise: bool = False,
    ) -> None:
        self._job, self.deliveries, self._fields = entry
        self.value = value
        """The value that was put, decoded by the queue's codec."""
        self.worker = worker
        """Name of the worker that it was delivered to."""
        self._queue = queue
        self._gathers, self._reraise = gathers, reraise
        self._worked = queue, worker.encode()
        self._state = GIVEN  # until it is shown

    @property
    def _row(self) -> EntryRow:
        return self._fields

    @property
    def _number(self) -> int:
        return self._job

    @property
    def _reraises(self) -> bool:
        return self._reraise

    @property
    def _queue_name(self) -> str:
        return self._queue.name

    def _show(self, shown: bool = True) -> None:
        """Whether somebody gets it. If it is dropped otherwise, its consumer still has it."""
        self._state = OPEN if shown else GIVEN

    def __del__(self) -> None:
        try:
            if self._state is OPEN:
                self._queue._keeper.drop(self._worked, self._job, self.deliveries)
        except AttributeError:
            pass  # an interrupt struck during __init__

    # --- settling

    def _end(self, verb: Ending, needs: bytes | None = None) -> bool:
        if self._state is not OPEN:
            return self._state is ACKED and verb.name == Done.name
        queue, worker = self._worked
        sent = queue.end_words(verb, worker, self._job, self.deliveries)
        held = bool(queue._link.call(sent, verb.safe, queue._db, needs=needs))
        if verb.end is not OPEN or not held:
            self._state = verb.end if held else LOST
            queue._keeper.let_go(self._worked, self._job, self.deliveries)
        return held

    def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done. As `Job.ack`.

        Args:
            result: As in `Job.ack`.
            ttl: As in `Job.ack`.

        Returns:
            True once the acknowledgement has reached the durability level of the server. False if the lease was lost.

        Raises:
            EncodeError: The codec cannot encode the result, or it is too large (PayloadTooLarge); the job stays open.
            DataError: `ttl` is invalid.
        """
        # Without a number: its delivery fences it already, and a worker does this for each job.
        options = self._queue._options
        return self._end(ACK if result is NO_RESULT else DoneWith.of(options, result, ttl))

    def done_and(self, *puts: SharedPut) -> bool:
        """Mark the job as done and put other jobs, in one unit. As `Job.done_and`.

        Args:
            *puts: Jobs that `queue.new` made, for queues of the same store and database.

        Returns:
            False if the lease was lost; then nothing was put.

        Raises:
            DataError: An argument is no such job.
            QueueFull: A bounded queue has no room; the job stays open.
            Unsupported: The server is too old for an option of a put; the job stays open.
        """
        mine = self._queue
        needs = None
        for put in puts:
            if not isinstance(put, SharedPut):
                raise DataError(
                    f"done_and takes puts made by queue.new(...), not {type(put).__name__!r}"
                )
            if put.queue._link is not mine._link or put.queue._db != mine._db:
                raise DataError(
                    "done_and puts only into queues of the job's own store and database"
                )
            needs = all_needs(needs, put.request.needs, put.queue._needs)
        return self._end(AckAnd([put.queue.words(put.request)[2:] for put in puts]), needs)

    # --- the with block

    def __enter__(self) -> Self:
        self._enter(get_ident())
        return self

    def _enter(self, holder: Holder) -> None:
        if self._state is OPEN:
            self._queue._keeper.enter(self._worked, self._job, holder)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._exit(error, error is not None and ends_the_worker(error))

    def _exit(self, error: BaseException | None, ends_worker: bool) -> bool:
        """The end of the block. Returns whether it swallows the error."""
        if error is None:
            if self._state is OPEN:
                if self._gathers:
                    self._state = ACKED
                    self._queue._keeper.finish(self._worked, self._job, self.deliveries)
                else:
                    self._ack_or_warn()
            return False
        if self._state is not OPEN:
            self._too_late(error)
            return self._swallows(error)
        try:
            self._leave(error, ends_worker)
        except TidelogError as failure:
            if isinstance(error, Exception):
                raise
            self._kept(failure)
        return self._swallows(error)

    def _ack_or_warn(self) -> None:
        try:
            held = self.ack()
        except OutcomeUnknown as error:
            self._state = LOST
            self._queue._keeper.let_go(self._worked, self._job, self.deliveries)
            log.warning(
                "queue %s: job %s was done, but perhaps its acknowledgement was not stored; then it is delivered "
                "again: %s",
                *(self._queue.name, self.id, str(error)),
            )
            return
        if not held:
            self._was_lost()

    def _leave(self, error: BaseException, ends_worker: bool) -> None:
        if ends_worker:
            self.release()
            return
        self._end(ending_of(error, self._row, self._queue._options))
        self._failed(error)
