"""Calls: the methods of shared stores for asyncio that only run the threads' method in a thread.

Generated from store.py, schedules.py, queue.py, job.py, dead.py by tools/dev/make_threaded.py: change those files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from tidelog.api.idrange import IdRange
from tidelog.api.queue.choosing import Ids, Jobs, Where
from tidelog.api.types import KeyT, TextT
from tidelog.client.dead import SharedDead
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.queue import SharedQueue
from tidelog.client.schedules import SharedSchedules
from tidelog.client.store import FSYNCED, SharedStore
from tidelog.client.threaded import threaded
from tidelog.jobs.rows import DeadJob, Failure, WaitingJob
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.stats import Stats
from tidelog.jobs.typed import T
from tidelog.jobs.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.durations import Duration

if TYPE_CHECKING:
    from tidelog.snapshot.portable import Snapshot


class StoreCalls(Generic[TextT]):
    """The calls of a `SharedStore` that wait in a thread."""

    _store: SharedStore[TextT]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run any command, given as words. As `Store.execute_command`.

        Raises:
            DataError: There are no words, or the command is SELECT or another one that changes the connection, of which
                calls use several by turns.
            ResponseError: The command is unknown or refused.
        """
        return await threaded(partial(self._store.execute_command, *args, **options))

    async def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit: all are stored or none. As `Store.xadd_many`.

        Raises:
            DataError: `rows` is not an iterable of dicts.
            ResponseError: The key holds no stream.
        """
        return await threaded(partial(self._store.xadd_many, key, rows))

    async def ping(self) -> bool:
        """True while a server of the store answers."""
        return await threaded(self._store.ping)

    async def schedule(
        self,
        name: str,
        cron: str | None = None,
        *,
        queue: str,
        every: Duration | None = None,
        value: Any = None,
        tz: str | None = None,
        catch_up: str = "one",
        codec: Any = "json",
        priority: int = 0,
    ) -> Schedule:
        """Put a job into a queue again and again. As `Store.schedule`.

        The process that serves the store computes the ticks, by its clock and its time zones.

        Args:
            name: As in `Store.schedule`, and so are the others.
            cron: A cron expression.
            queue: Name of the queue that gets the jobs.
            every: The interval instead.
            value: The value of each job.
            tz: Name of the time zone of the cron expression.
            catch_up: `one`, `all` or `none` of the ticks that were missed.
            codec: Encodes the value.
            priority: The priority of each job, from 0 to 9.

        Returns:
            The schedule.

        Raises:
            DataError: An argument is invalid, the time zone is unknown, or the expression never fires.
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
        """
        return await threaded(
            partial(
                self._store.schedule,
                name,
                cron,
                queue=queue,
                every=every,
                value=value,
                tz=tz,
                catch_up=catch_up,
                codec=codec,
                priority=priority,
            )
        )

    async def barrier(
        self,
        level: str = FSYNCED,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until everything written so far has reached a level.

        Args:
            level: As in `Store.barrier`.
            replicas: As in `at`.
            fsynced: As in `at`.
            timeout: As in `at`.

        Raises:
            DataError: The level is unknown, or another argument is invalid.
            NotReplicated: Too few followers have confirmed it in time.
        """
        await threaded(
            partial(self._store.barrier, level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        )

    async def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The figures of INFO, as texts.

        Args:
            section: Only this section, and those in `args`.
        """
        return await threaded(partial(self._store.info, section, *args))

    async def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The options of the server that match a glob pattern.

        Args:
            pattern: The pattern; further ones in `args`.
        """
        return await threaded(partial(self._store.config_get, pattern, *args))

    async def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change options of the server until it ends.

        Args:
            name: Name of an option.
            value: Its new value.
            *args: Further names and values.

        Returns:
            True.

        Raises:
            ResponseError: There is no such option, or the value is invalid.
        """
        return await threaded(partial(self._store.config_set, name, value, *args))

    async def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. Other calls go on meanwhile.

        Returns:
            The last LSN that the checkpoint covers. If another one was made right after it, that one's.

        Raises:
            ResponseError: The checkpoint could not be made; nothing has changed.
        """
        return await threaded(self._store.checkpoint)

    async def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state in its folder snapshots/. As `Store.snapshot`.

        The process that serves the store makes it.

        Returns:
            Its path, on the machine of that process, and its manifest.

        Raises:
            CheckpointFailed: The snapshot could not be made; nothing has changed.
        """
        return await threaded(self._store.snapshot)

    async def promote(self) -> None:
        """Make a follower a leader, which takes writes. As `Store.promote`.

        Raises:
            ResponseError: The role could not be changed.
        """
        await threaded(self._store.promote)

    async def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until the server has applied a write that was made elsewhere. As `Store.wait_for`.

        Args:
            token: As in `Store.wait_for`.
            timeout: As in `Store.wait_for`.

        Raises:
            DataError: The timeout is invalid.
            ResponseError: The token is malformed or another store's.
            TokenLate: It was not applied in time.
            TokenLost: The history of the store shows that the write was given up.
        """
        await threaded(partial(self._store.wait_for, token, timeout))


class SchedulesCalls:
    """The calls of a `SharedSchedules` that wait in a thread."""

    _schedules: SharedSchedules

    async def list(self) -> list[Schedule]:
        """All schedules, by name."""
        return await threaded(self._schedules.list)

    async def pause(self, name: str) -> bool:
        """Stop the ticks of a schedule. As `Schedules.pause`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return await threaded(partial(self._schedules.pause, name))

    async def resume(self, name: str) -> bool:
        """End a pause. As `Schedules.resume`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name, or the next tick cannot be computed where the store is served.
        """
        return await threaded(partial(self._schedules.resume, name))

    async def remove(self, name: str) -> bool:
        """Delete a schedule. As `Schedules.remove`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return await threaded(partial(self._schedules.remove, name))


class QueueCalls(Generic[T]):
    """The calls of a `SharedQueue` that wait in a thread."""

    _queue: SharedQueue[T]

    def new(
        self,
        value: T,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> SharedPut:
        """A job for `AsyncSharedJob.done_and` to put. As `Queue.new`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        return self._queue.new(
            value,
            dedup_id=dedup_id,
            headers=headers,
            delay=delay,
            at=at,
            ttl=ttl,
            priority=priority,
            key=key,
        )

    async def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
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
        return await threaded(
            partial(
                self._queue.put_many,
                values,
                timeout=timeout,
                delay=delay,
                at=at,
                ttl=ttl,
                priority=priority,
                key=key,
            )
        )

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
            NoResult: It has ended without a result, or the result has expired.
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
