"""Calls: the methods of shared stores for asyncio that only run the threads' method in a thread.

Generated from queue.py, job.py by tools/dev/make_threaded.py: change those files.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Generic, Unpack

from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.queue import SharedQueue
from tidelog.client.threaded import threaded
from tidelog.jobs.job_options import PutManyOptions, PutOptions
from tidelog.jobs.typed import T
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.durations import Duration


class QueueCalls(Generic[T]):
    """The calls of a `SharedQueue` that wait in a thread."""

    _queue: SharedQueue[T]

    def new(self, value: T, **options: Unpack[PutOptions]) -> SharedPut:
        """A job for `AsyncSharedJob.done_and` to put. As `Queue.new`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        return self._queue.new(value, **options)

    async def put_many(
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
        return await threaded(partial(self._queue.put_many, values, timeout=timeout, **options))

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
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
        return await threaded(partial(self._queue.result, job_id, timeout))


class JobCalls(Generic[T]):
    """The calls of a `SharedJob` that wait in a thread."""

    _job: SharedJob[T]

    async def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
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
        return await threaded(partial(self._job.ack, result, ttl=ttl))

    async def done_and(self, *puts: SharedPut) -> bool:
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
        return await threaded(partial(self._job.done_and, *puts))
