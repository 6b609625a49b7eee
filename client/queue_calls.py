"""Calls: the methods of shared stores for asyncio that only run the threads' method in a thread.

Generated from queue.py, job.py, dead.py by tools/dev/make_threaded.py: change those files.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Generic, Unpack

from tidelog.api.queue.choosing import Ids, Jobs, Where
from tidelog.client.dead import SharedDead
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.queue import SharedQueue
from tidelog.client.threaded import threaded
from tidelog.jobs.job_options import PutManyOptions, PutOptions
from tidelog.jobs.rows import DeadJob, Failure, WaitingJob
from tidelog.jobs.stats import Stats
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

    async def subscribe(self) -> None:
        """Create the group now if it is missing. As `Queue.subscribe`."""
        await threaded(self._queue.subscribe)

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

    async def stats(self) -> Stats:
        """Figures about the queue now."""
        return await threaded(self._queue.stats)

    async def peek(self, count: int = 10, *, scheduled: bool = False) -> list[WaitingJob]:
        """The next jobs that are due, retries first. They are not delivered.

        Args:
            count: At most this many.
            scheduled: Show the delayed jobs that are not due yet instead, in the order of their times.

        Raises:
            DataError: `count` is not a positive integer.
        """
        return await threaded(partial(self._queue.peek, count, scheduled=scheduled))

    async def failures(self, job_id: str | None = None, count: int = 100) -> list[Failure]:
        """Recorded failures, newest first.

        Args:
            job_id: Only those of this job.
            count: At most this many.

        Raises:
            DataError: `count` is not a positive integer.
        """
        return await threaded(partial(self._queue.failures, job_id, count))

    async def cancel(self, job_id: str) -> bool:
        """Delete a delayed job. As `Queue.cancel`.

        Args:
            job_id: The ID that `put` returned.

        Returns:
            False if it is no delayed job any more: it became due, or was cancelled.

        Raises:
            DataError: `job_id` is no ID.
        """
        return await threaded(partial(self._queue.cancel, job_id))

    async def forget(self, dedup_id: str) -> bool:
        """Free a dedup ID, so that the next put with it adds a job. As `Queue.forget`.

        Args:
            dedup_id: The ID that was given to `put`.

        Returns:
            False if it was free.

        Raises:
            DataError: `dedup_id` is no ID.
            Unsupported: The server is too old; nothing changed.
        """
        return await threaded(partial(self._queue.forget, dedup_id))

    async def move(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Make a delayed job due at another time. As `Queue.move`.

        Args:
            job_id: The ID that `put` returned.
            delay: Seconds or a timedelta from now.
            at: A datetime with a time zone. Give either this or `delay`. A time in the past means now.

        Returns:
            False if it is no delayed job any more: it became due, or was cancelled.

        Raises:
            DataError: An argument is invalid.
        """
        return await threaded(partial(self._queue.move, job_id, delay=delay, at=at))

    async def purge(self) -> int:
        """Delete every job that is not in flight. Returns how many."""
        return await threaded(self._queue.purge)


class JobCalls(Generic[T]):
    """The calls of a `SharedJob` that wait in a thread."""

    _job: SharedJob[T]

    @property
    def id(self) -> str:
        """The job's ID, `ms-seq`."""
        return self._job.id

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were put with it."""
        return self._job.headers

    @property
    def origin(self) -> str | None:
        """The ID that `put` returned, if a delayed or a redriven job has another one since; None for any other."""
        return self._job.origin

    @property
    def dedup_id(self) -> str | None:
        """The dedup ID that it was put with, if the mode was `until-done` or `replace`; None for any other."""
        return self._job.dedup_id

    @property
    def priority(self) -> int:
        """The priority that it was put with, from 0 to 9."""
        return self._job.priority

    @property
    def key(self) -> str | None:
        """The key that it was put with."""
        return self._job.key

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return self._job.enqueued_at

    @property
    def state(self) -> str:
        """`open`; `acked`; `given` (back for a retry, or dead); or `lost` to another worker."""
        return self._job.state

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

    async def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. As `Job.nack`.

        Args:
            reason: Text or exception to record as evidence.
            delay: Seconds or a timedelta before the retry; None = a pause that grows with each delivery.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `delay` is invalid.
        """
        return await threaded(partial(self._job.nack, reason, delay))

    async def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job. As `Job.fail`.

        Args:
            reason: Text or exception to record as evidence.

        Returns:
            False if the lease was lost.
        """
        return await threaded(partial(self._job.fail, reason))

    async def release(self) -> bool:
        """Give the job back as if it had not been delivered. It is due at once.

        Returns:
            False if the lease was lost.
        """
        return await threaded(self._job.release)

    async def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while, even if this process ends. As `Job.extend`.

        Args:
            seconds: Seconds or a timedelta from now.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `seconds` is invalid.
        """
        return await threaded(partial(self._job.extend, seconds))

    async def done_and(self, *puts: SharedPut) -> bool:
        """Mark the job as done and put other jobs, in one unit. As `Job.done_and`.

        Args:
            *puts: Jobs that `queue.new` made, for queues of the same store and database.

        Returns:
            False if the lease was lost; then nothing was put.

        Raises:
            DataError: An argument is no such job.
            QueueFull: A bounded queue has no room; the job stays open.
            Unsupported: The server has no `dedup` of a put but "window"; the job stays open.
        """
        return await threaded(partial(self._job.done_and, *puts))


class DeadCalls:
    """The calls of a `SharedDead` that wait in a thread."""

    _dead: SharedDead

    async def list(self, count: int | None = None, where: Where | None = None) -> Jobs:
        """The first dead jobs, oldest first. As `Dead.list`.

        Args:
            count: At most this many; None = all.
            where: Only jobs for which this function is true.

        Raises:
            DataError: An argument is invalid.
        """
        return await threaded(partial(self._dead.list, count, where))

    async def count(self) -> int:
        """Number of dead jobs."""
        return await threaded(self._dead.count)

    async def get(self, id: str) -> DeadJob | None:
        """Look up one dead job. As `Dead.get`.

        Args:
            id: ID of the dead job (`DeadJob.id`).

        Returns:
            The dead job; None if there is none with this ID.

        Raises:
            DataError: The ID is malformed.
        """
        return await threaded(partial(self._dead.get, id))

    async def redrive(
        self, ids: Ids = None, *, where: Where | None = None, dry_run: bool = False
    ) -> int:
        """Put dead jobs back into the queue, as new jobs with `AsyncSharedJob.origin`. As `Dead.redrive`.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            dry_run: Only count them.

        Returns:
            How many were put back, or would be.

        Raises:
            DataError: An argument is invalid.
        """
        return await threaded(partial(self._dead.redrive, ids, where=where, dry_run=dry_run))

    async def purge(
        self, ids: Ids = None, *, where: Where | None = None, older_than: Duration | None = None
    ) -> int:
        """Delete dead jobs. As `Dead.purge`.

        Args:
            ids: IDs of dead jobs, or one ID; None = all that are dead now.
            where: Only jobs for which this function is true.
            older_than: Only jobs that died at least this many seconds (or a timedelta) ago.

        Returns:
            How many were deleted.

        Raises:
            DataError: An argument is invalid.
        """
        return await threaded(partial(self._dead.purge, ids, where=where, older_than=older_than))
