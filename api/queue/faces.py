"""The faces of a queue and of a job for threads, whatever the store: open in this process, or served by another one.

`Queue`, `Job` and their kin inherit them. The backend of a queue and the hooks of a job hold the differences.

Generated from afaces.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, Unpack

from tidelog.api.closing import Closing
from tidelog.api.queue.backend import Backend
from tidelog.api.queue.ends import Ends
from tidelog.api.queue.handle import Handle
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.api.queue.running.by_threads import J, RunsThreads
from tidelog.api.queue.running.plan import RETRIED, check_hook
from tidelog.api.queue.verbs import Verbs
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.delivered import Delivered
from tidelog.jobs.job_options import PutManyOptions, PutOptions, batch_options
from tidelog.jobs.putting import NewJob
from tidelog.jobs.raised import ending_of
from tidelog.jobs.rows import VALUE
from tidelog.jobs.typed import T
from tidelog.jobs.units import PAYLOAD_BYTES_MAX, checked_payload
from tidelog.jobs.verbs.done import DoneWith
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import EncodeError, OutcomeUnknown, TidelogError, from_command
from tidelog.store.lifetime import DRAIN_SECONDS

C = TypeVar("C")


class QueueFace(RunsThreads[J], Verbs[T], Closing, Generic[J, C, T]):
    """The methods of a queue for threads. J: its jobs, C: its consumers, T: its values."""

    _backend: Backend
    _consumer: ClassVar[Any]  # the class C

    def __init__(self, store: Any, backend: Backend) -> None:
        super().__init__(backend.options)
        self._store, self._backend = store, backend
        self._puts_directly = backend.puts_directly

    @property
    def store(self) -> Any:
        """The store that holds the queue, open or shared."""
        return self._store

    def __reduce__(self) -> Any:
        raise TypeError(self._backend.unpicklable)

    # --- putting

    def put(
        self, value: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Handle:
        """Put one job. Returns once it has reached the store's durability level (see `Store.fsync`).

        If the connection to a shared store breaks meanwhile, the put is repeated, and adds one job.

        Args:
            value: Anything that the codec encodes.
            timeout: Seconds or a timedelta to wait while a bounded queue is full; None = for ever, 0 = not at all.
            options: `dedup_id`, `dedup`, `headers`, `delay`, `at`, `ttl`, `priority`, `key`. `PutOptions` describes
                them.

        Returns:
            The job's ID, `ms-seq`, a str; its method `result` waits for what the worker says. A delayed job gets a new
            ID when it is due; then `Job.origin` is this one.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; nothing was put.
            Unsupported: The server of a shared store is too old for a `dedup` other than "window"; nothing was put.
        """
        # Without a request, and a call less.
        if self._puts_directly and not options and timeout is None:
            if self._raw and value.__class__ is bytes:
                data: Any = value
            else:
                try:
                    data = self._encode(value)
                except Exception:
                    data = rows.encode_value(self._options, value)  # a clear EncodeError
            if len(data) > PAYLOAD_BYTES_MAX:
                checked_payload(self._options.name, data)
            backend: Any = self._backend
            core = backend.core
            try:
                effect, log, lsn = core.add(backend.db, self._options.key, (VALUE, data))
            except CommandError as error:
                raise from_command(error) from None
            if backend.fulfils_each or lsn > core.durability.through(log, backend.level):
                backend.fulfil((log, lsn, True))
            return Handle.of(self, f"{effect[3]}-{effect[4]}")
        request = PutJob.of(self._options, value, options)
        id = self._backend.put(request, patience("timeout", timeout))
        return Handle.of(self, id)

    def new(self, value: T, **options: Unpack[PutOptions]) -> NewJob:
        """A job for `Job.done_and` to put.

        Args:
            value: As in `Queue.put`.
            options: As in `Queue.put`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        return self._backend.new(PutJob.of(self._options, value, options))

    def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutManyOptions],
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. Memory use does not depend on their number.

        Args:
            values: Values as `put` takes them.
            timeout: As in `put`, for all of them together.
            options: `delay`, `at`, `ttl`, `priority`, `key`, as in `put`, of all of them.

        Returns:
            How many were put.

        Raises:
            EncodeError: The codec cannot encode a value, or it is too large (PayloadTooLarge). Those before it were
                put; `stored` is their number.
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; `stored` values were put, the first ones.
        """
        wait = patience("timeout", timeout)
        how = self._backend.batches(batch_options(options), wait)
        total = 0
        for batch, error in self._batches(values):
            while batch:
                stored = self._backend.put_some(how, batch, total)
                total += stored
                batch = batch[stored:]
            if error is not None:
                if isinstance(error, EncodeError):
                    error.stored = total
                raise error
        return total

    # --- consuming

    def consume(
        self,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        *,
        time_limit: Duration | None = None,
        reraise: bool = False,
        on_retry: Callable[[J, BaseException, float], object] | None = None,
    ) -> C:
        """Iterate over jobs: earlier jobs of this worker, abandoned jobs and retries that are due, then new jobs.

        Args:
            worker: The worker's name. After a restart a worker of the same name gets its unfinished jobs at once.
                Without a name, any worker gets them when their lease ends.
            batch: Jobs to fetch together. They are acknowledged together when all are done, or after a second, so a
                crash repeats at most this many.
            block: End the iteration after this many seconds (or a timedelta) without a job; None = never, 0 = at once.
            time_limit: Renew a job's lease for at most this many seconds (or a timedelta); None = as long as the job is
                held.
            reraise: Let an exception in a job's `with` block propagate after it was recorded. False: it is only
                recorded and logged.
            on_retry: Called with a job, the exception and the seconds before the retry, at most once, after a failure
                was recorded and if the job will be tried again. After `Job.nack` with a text the exception is a
                RetryJob. Exceptions of the function are logged.

        Returns:
            An iterator of jobs.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The store was closed.
        """
        name, named = self._worker(worker), worker is not None
        if on_retry is not None:
            waits = False
            check_hook("on_retry", on_retry, 3, RETRIED, asynchronous=waits)
        made: C = self._consumer(
            self._backend, name, named, batch, block, time_limit, reraise, on_retry
        )
        return made

    def get(self, worker: str | None = None, block: Duration | None = None) -> J | None:
        """Fetch one job.

        Args:
            worker: The worker's name, as in `consume`.
            block: Wait this many seconds (or a timedelta); None = for ever, 0 = not at all.

        Returns:
            The job; None if none came.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The store was closed.
        """
        jobs: Any = self.consume(worker, 1, block)
        for job in jobs:
            found: J = job
            return found
        return None

    # --- results

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job, which its worker gives to `Job.ack`. `Handle.result` is the same.

        A delayed or redriven job is found by the ID that `put` returned, not by the one that it has now. After a
        redrive the outcome of the new job counts.

        Args:
            job_id: The ID that `put` returned.
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Returns:
            The result, decoded by the codec. A result can be asked for any number of times until it expires.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: An argument is invalid.
        """
        request, wait = AskResult.of(job_id), patience("timeout", timeout)
        return self._result(job_id, self._backend.answer(request, wait))

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store, as `Store.close` does, if `tidelog.queue` opened it for this queue. Otherwise do nothing.

        A shared store stays open in the process that serves it.

        Args:
            drain: As in `Store.close`.

        Returns:
            How many jobs were left in the hands of other threads and tasks.

        Raises:
            DataError: `drain` is not a duration.
        """
        return int(self._store.close(drain)) if self._backend.opened_here else 0


class JobFace(Ends, Delivered, Generic[T]):
    """A delivered job for threads. A class that inherits it adds `value` and the hooks."""

    __slots__ = ()

    # --- hooks

    def _ack(self) -> bool:
        """The job is done, and leaves no result: whether the worker still held it."""
        raise NotImplementedError

    def _joined(self, puts: tuple[NewJob, ...]) -> Ending:
        """The request of `done_and`. Raises DataError."""
        raise NotImplementedError

    def _enter(self, holder: Holder) -> None:
        """A thread or task enters the block. A different one may have taken the job."""
        raise NotImplementedError

    def _gathers(self) -> bool:
        """Whether the job is one of a batch. Then it is done, and written with the rest."""
        raise NotImplementedError

    def _unknown(self, error: OutcomeUnknown) -> None:
        """At the end of the block nobody knows whether the acknowledgement was stored."""
        raise error

    # --- ending

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
            return self._ack()
        return self._end(DoneWith.of(self._options, result, ttl))

    def done_and(self, *puts: NewJob) -> bool:
        """Mark the job as done and put other jobs, in one unit: both happen or neither.

            job.done_and(invoices.new({"order": 7}), mails.new({"to": "ann"}))

        Args:
            *puts: Jobs that `queue.new` made, for queues of the same store and database.

        Returns:
            False if the lease was lost; then nothing was put.

        Raises:
            DataError: An argument is no such job.
            QueueFull: A bounded queue has no room; the job stays open.
            Unsupported: The server of a shared store has no `dedup` of a put but "window"; the job stays open.
        """
        return self._end(self._joined(puts))

    # --- the with block

    def __enter__(self) -> Self:
        self._enter(get_ident())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            if self._state is OPEN and not self._gathers():
                try:
                    if not self._ack():
                        self._was_lost()
                except OutcomeUnknown as unknown:
                    self._unknown(unknown)
            return False
        if self._state is OPEN:
            try:
                self._leave(error, ends_the_worker(error))
            except TidelogError as failure:
                if isinstance(error, Exception):
                    raise
                self._kept(failure)  # the interrupt propagates
        else:
            self._too_late(error)
        return self._swallows(error)

    def _leave(self, error: BaseException, ends_worker: bool) -> None:
        """Give the job back after an exception left its block.

        ends_worker    it was meant for the worker: the job has not failed
        """
        if ends_worker:
            self.release()
        else:
            self._fails(ending_of(error, self._row, self._options), error, left=True)
