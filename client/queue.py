"""SharedQueue: the durable queue of a store that another process serves, for threads. Many processes may share it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from tidelog.api.closing import Closing
from tidelog.api.queue.handle import Handle
from tidelog.api.queue.running.by_threads import RunsThreads
from tidelog.api.queue.running.plan import SHARED_PASSING
from tidelog.api.queue.verbs import Verbs
from tidelog.client.base import Base, slice_s
from tidelog.client.consumer import SharedConsumer
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.keeper import BEAT_S, RENEW_S
from tidelog.engine import ids
from tidelog.jobs.job_options import PutManyOptions, PutOptions, batch_options
from tidelog.jobs.option_words import needs_of, option_words
from tidelog.jobs.options import Options
from tidelog.jobs.own import ms_word
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.put_many import PutMany
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.verbs.verb import Safe, Verb, all_needs
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import EncodeError, QueueFull
from tidelog.store.lifetime import DRAIN_SECONDS


class SharedQueue(RunsThreads[SharedJob[T]], Verbs[T], Closing):
    """A durable queue of a shared store. `SharedStore.queue` or `tidelog.queue(..., shared=True)` makes it.

    It has the methods of `Queue`. `len(queue)` is the number of jobs that are not done. An empty queue is still true.

    Any method may raise the errors that `Queue` lists, and Unreachable if no server of the store answers.
    """

    _opened_here = False
    _kind = "shared-"
    _passing = SHARED_PASSING

    def __init__(self, store: Base, options: Options, codec: Any = None) -> None:
        super().__init__(options)
        self._store = store
        # Other processes can import this one; that of the options may be a closure.
        self._given_codec = codec
        self._db = store._db
        self._keeper, self._link = store._keeper, store._link
        self._key = options.key
        self.renew_s = min(RENEW_S, options.lease / 6)
        self.beat_s = min(BEAT_S, self.renew_s)
        self.lease_s = options.lease / 1.5
        self._words, self._needs = option_words(options), needs_of(options)
        self._named_by = os.getpid()
        self._begun: set[bytes] = set()  # workers for which HISTORY was sent

    @property
    def store(self) -> Any:
        """The shared store that holds the queue."""
        return self._store

    def __reduce__(self) -> Any:
        raise TypeError(
            "a shared queue cannot be pickled; in the other process, connect to its path"
        )

    def words(self, verb: Verb, *more: bytes) -> list[bytes]:
        """A request as a QUEUE command, with more options."""
        options = self._words if verb.of_group else ()
        return [b"QUEUE", verb.name, self._key, *verb.words(), *more, *options]

    def end_words(self, verb: Ending, worker: bytes, job: int, deliveries: int) -> list[bytes]:
        """The words of a worker about a delivery, as a QUEUE command."""
        fence = worker, ids.text(job), b"%d" % deliveries
        return [b"QUEUE", verb.name, self._key, *fence, *verb.words(), *self._words]

    def _ask(self, verb: Verb, *more: bytes, block: float = 0.0) -> Any:
        words, link = self.words(verb, *more), self._link
        needs = verb.needs if self._needs is None else all_needs(self._needs, verb.needs)
        return verb.result(link.call(words, verb.safe, self._db, block=block, needs=needs))

    def _time(self) -> float:
        clock = self._link.call((b"TIME",), Safe.READ)
        return int(clock[0]) + int(clock[1]) / 1e6

    # --- putting

    def put(
        self, value: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Handle:
        """Put one job. As `Queue.put`. If the connection breaks meanwhile, the put is repeated, and adds one job.

        Returns:
            The job's ID, `ms-seq`, as `Queue.put` returns it.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; nothing was put.
            Unsupported: The server is too old for `retry`, or a `dedup` other than "window"; nothing was put.
        """
        request = PutJob.of(self._options, value, options)
        id: bytes = self._until_room(request, patience("timeout", timeout))
        return Handle.of(self, id.decode())

    def new(self, value: T, **options: Unpack[PutOptions]) -> SharedPut:
        """A job for `SharedJob.done_and` to put. As `Queue.new`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        return SharedPut(self, PutJob.of(self._options, value, options))

    def _until_room(self, request: Verb, wait: float | None) -> Any:
        """The result of a put, which waits so long for room. Raises QueueFull."""
        if self._options.max_depth is None or wait == 0:
            return self._ask(request)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = slice_s(until)
            try:
                return self._ask(request, b"BLOCK", ms_word(left), block=left)
            except QueueFull:
                if until is not None and time.monotonic() >= until:
                    raise

    def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutManyOptions],
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. As `Queue.put_many`.

        Returns:
            How many were put.

        Raises:
            EncodeError: The codec cannot encode a value, or it is too large (PayloadTooLarge). Those before it were
                put; `stored` is their number.
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; `stored` values were put, the first ones.
        """
        wait = patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        given = batch_options(options)
        total = 0
        for batch, error in self._batches(values):
            while batch:
                left = None if until is None else max(0.0, until - time.monotonic())
                try:
                    stored = self._until_room(PutMany(batch, given), left)
                except QueueFull as full:
                    full.stored = total
                    raise
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
    ) -> SharedConsumer[T]:
        """Iterate over jobs. As `Queue.consume`.

        Args:
            worker: The worker's name. After a restart of this process a worker of the same name gets its unfinished
                jobs at once. Without a name, any worker gets them when their lease ends.

        Returns:
            An iterator of `SharedJob`.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The shared store was closed.
        """
        return SharedConsumer(self, worker, batch, block, time_limit, reraise)

    def get(self, worker: str | None = None, block: Duration | None = None) -> SharedJob[T] | None:
        """Fetch one job. As `Queue.get`.

        Args:
            worker: The worker's name, as in `consume`.
            block: Wait this many seconds (or a timedelta); None = for ever, 0 = not at all.

        Returns:
            The job; None if none came.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The shared store was closed.
        """
        # No call, after which an interrupt may strike, stands between the consumer and the caller.
        for job in self.consume(worker, 1, block):
            return job
        return None

    def _worker(self, worker: Any) -> str:
        if self._named_by != os.getpid():
            # a child of a fork has names of its own
            self._own_worker, self._named_by = None, os.getpid()
        return super()._worker(worker)

    def _run_processes(
        self, handler: Callable[[SharedJob[T]], object], count: int, run: dict[str, Any]
    ) -> int:
        # here: few programs start processes
        from tidelog.client.working import run_processes

        return run_processes(self, handler, count, run)

    # --- results

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job. As `Queue.result`.

        Args:
            job_id: The ID that `put` returned.
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: An argument is invalid.
        """
        request, wait = AskResult.of(job_id), patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = slice_s(until)
            words = () if wait == 0 else (b"BLOCK", ms_word(left))
            outcome = self._ask(request, *words, block=left)
            if outcome is not None or until is not None and time.monotonic() >= until:
                return self._result(job_id, outcome)

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect, as `SharedStore.close`, if `tidelog.queue` connected for this queue. Otherwise do nothing.

        Returns:
            How many jobs were left in the hands of other threads and tasks.

        Raises:
            DataError: `drain` is not a duration.
        """
        return self._store.close(drain) if self._opened_here else 0
