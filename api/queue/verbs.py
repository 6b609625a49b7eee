"""Verbs: a caller asks a queue by name, for threads. A shared store's queue has the calls of an open store's.

Generated from averbs.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Unpack

from tidelog.api.queue.backend import Backend
from tidelog.api.queue.base import QueueOf
from tidelog.api.queue.dead import Dead
from tidelog.api.queue.deaths import Deaths
from tidelog.jobs import rows
from tidelog.jobs.rows import DeadJob, Failure, WaitingJob
from tidelog.jobs.stats import Stats, WorkerStatus
from tidelog.jobs.status import FoundJobs, JobStatus
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.cancel import Cancel
from tidelog.jobs.verbs.failures import Failures
from tidelog.jobs.verbs.find import SLICES_MAX, Find, FindOptions, found_at_text
from tidelog.jobs.verbs.forget import Forget
from tidelog.jobs.verbs.job import AskJob
from tidelog.jobs.verbs.length import Length
from tidelog.jobs.verbs.move import Move
from tidelog.jobs.verbs.pause import Pause
from tidelog.jobs.verbs.paused import Paused
from tidelog.jobs.verbs.peek import Peek
from tidelog.jobs.verbs.purge import Purge
from tidelog.jobs.verbs.remove import Remove
from tidelog.jobs.verbs.resume import Resume
from tidelog.jobs.verbs.stats import AskStats
from tidelog.jobs.verbs.subscribe import Subscribe
from tidelog.jobs.verbs.workers import AskWorkers
from tidelog.store.durations import Duration


class Verbs(QueueOf[T]):
    """The verbs of a queue that are asked and answered at once."""

    _backend: Backend

    @property
    def dead(self) -> Dead:
        """The dead jobs: those that were given up."""
        return Dead(self._backend)

    def deaths(
        self, since: str | None = None, *, block: Duration | None = None
    ) -> Iterator[DeadJob]:
        """Wait for jobs that die, of all groups, and iterate over them.

        It does not matter which process gave a job up. A dead job that was redriven or purged before the iterator
        reaches it is left out.

            for job in mails.deaths(since=last_id):
                tell(job.original_id, job.reason)

        Args:
            since: `DeadJob.id` of the last one that the program knows. "0-0" = begin with the oldest one that is kept,
                None = only those that die after the first step of the iteration.
            block: End after this many seconds (or a timedelta) without a death; None = never, 0 = at once.

        Returns:
            An iterator of `DeadJob`, in the order of their deaths.

        Raises:
            DataError: An argument is invalid.
        """
        return Deaths(self._backend).after(since, block)

    def subscribe(self) -> None:
        """Create the group now if it is missing. It then gets all jobs that are in the queue and all that will be put.

        The first fetch creates the group too. But jobs that other groups finished before are not kept for it.
        """
        self._backend.ask(Subscribe())

    # --- looking

    def stats(self) -> Stats:
        """Figures about the queue now."""
        found: Stats = self._backend.ask(AskStats())
        return found

    def workers(self) -> list[WorkerStatus]:
        """The workers of the group by name: those that live, and those that were seen within a day or left jobs behind.

        Raises:
            Unsupported: The server of a shared store is too old.
        """
        found: list[WorkerStatus] = self._backend.ask(AskWorkers())
        return found

    def peek(self, count: int = 10, *, scheduled: bool = False) -> list[WaitingJob]:
        """The next jobs that are due, those with the highest priority first, then retries. They are not delivered.

        Args:
            count: At most this many.
            scheduled: Show the delayed jobs that are not due yet instead, in the order of their times.

        Raises:
            DataError: `count` is not a positive integer.
        """
        codec = self._options.codec
        found = self._backend.ask(Peek(count, scheduled))
        return [rows.waiting_job(codec, job, row, due) for job, row, due in found if row]

    def failures(self, job_id: str | None = None, count: int = 100) -> list[Failure]:
        """Recorded failures, newest first.

        Args:
            job_id: Only those of this job.
            count: At most this many.

        Raises:
            DataError: `count` is not a positive integer.
        """
        found: list[Failure] = self._backend.ask(Failures(job_id, count))
        return found

    def job(self, job_id: str) -> JobStatus | None:
        """Tell what became of a job, for the group of this queue, for as long as anything of it is stored.

        Args:
            job_id: The ID that `put` returned, whatever ID the job has now.

        Returns:
            None if nothing of the job is left: it is done and was not kept, was purged, or never was. Of cancelled
            jobs, the last 1,000 are kept. A job that was delayed or redriven is known by its result once it is done.

        Raises:
            DataError: `job_id` is no ID.
            Unsupported: The server of a shared store is too old.
        """
        found: JobStatus | None = self._backend.ask(AskJob.of(job_id))
        return None if found is None else replace(found, codec=self._options.codec)

    def find(self, **options: Unpack[FindOptions]) -> FoundJobs:
        """Find jobs by their facts, among those that the group has not done and those that it gave up.

        With `state="cancelled"` it finds those that were cancelled. All arguments that are given hold for each of them.

        One call looks at 20,000 jobs at most, and at more only where it can tell without decoding them that they are
        not wanted. It says how far it looked:

            found = mails.find(key="ann")
            while found.until:
                found = mails.find(key="ann", after=found.until)

        They come in the order of the IDs that they have now. A job that becomes due, dies or is redriven between two
        calls gets a greater ID, so it may be found twice. Jobs that are done are not found: `job` tells of them.

        Args:
            options: `key`, `header`, `error`, `text`, `state`, `since`, `limit`, `after`. `FindOptions` describes them.

        Raises:
            DataError: An argument is invalid.
            Unsupported: The server of a shared store is too old.
        """
        request = Find.of(options)
        limit = request.count
        jobs: list[JobStatus] = []
        for _ in range(SLICES_MAX):
            found, until = self._backend.ask(request)
            jobs += (replace(each, codec=self._options.codec) for each in found)
            if until is None or len(jobs) >= limit:
                break
            request = request.following(until, limit - len(jobs))
        return FoundJobs(jobs, None if until is None else found_at_text(until))

    def __len__(self) -> int:
        """Number of jobs that are not done."""
        return int(self._backend.ask(Length()))

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    # --- changing

    def cancel(self, job_id: str, *, group: str | None = None) -> bool:
        """Cancel a job that is not done: one that is delayed, waits, is paused, or runs.

        It is not delivered any more, and recorded as cancelled. A worker that runs it sees `Job.cancelled`: at once if
        it works in the process that has the store open, otherwise when it renews its leases, within a second or so. The
        task in its `with` block is cancelled. After that, all methods by which the worker settles the job return
        False.

        Args:
            job_id: The ID that `put` returned.
            group: Only for this group; None = for all groups. A job that the group was not given yet can be cancelled
                for it only if there is no other group.

        Returns:
            False if there was nothing to cancel: the job is done or dead, or was cancelled. A server of version 0.1
            cancels delayed jobs only, and returns False for others.

        Raises:
            DataError: `job_id` is no ID, or `group` is no name.
            ResponseError: `group` was not given the job yet, and there are others.
            Unsupported: The server of a shared store is too old for `group`; nothing changed.
        """
        return bool(self._backend.ask(Cancel.asked(job_id, group)))

    def forget(self, dedup_id: str) -> bool:
        """Free a dedup ID, so that the next put with it adds a job. The job that has it stays as it is.

        Args:
            dedup_id: The ID that was given to `put`.

        Returns:
            False if it was free.

        Raises:
            DataError: `dedup_id` is no ID.
            Unsupported: The server of a shared store is too old; nothing changed.
        """
        return bool(self._backend.ask(Forget.of(dedup_id)))

    def move(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Make a delayed job due at another time. It keeps its ID.

        Args:
            job_id: The ID that `put` returned.
            delay: Seconds or a timedelta from now.
            at: A datetime with a time zone. Give either this or `delay`. A time in the past means now.

        Returns:
            False if it is no delayed job any more: it became due, or was cancelled.

        Raises:
            DataError: An argument is invalid.
        """
        return bool(self._backend.ask(Move.of(job_id, delay, at)))

    def pause(self) -> bool:
        """Deliver no more jobs, to no group of the queue, until `resume`. The pause is stored.

        Workers go on with the jobs that they hold, and wait for others. Jobs are put, and schedules and delays go on.

        Returns:
            False if the queue was paused.

        Raises:
            Unsupported: The server of a shared store is too old; nothing changed.
        """
        return bool(self._backend.ask(Pause()))

    def resume(self) -> bool:
        """Deliver jobs again.

        Returns:
            False if the queue was not paused.

        Raises:
            Unsupported: The server of a shared store is too old; nothing changed.
        """
        return bool(self._backend.ask(Resume()))

    def paused_at(self) -> datetime | None:
        """When the queue was paused, in UTC; None if it is not paused.

        Raises:
            Unsupported: The server of a shared store is too old.
        """
        ms: int | None = self._backend.ask(Paused())
        return None if ms is None else rows.moment(ms)

    def remove(self) -> bool:
        """Remove the queue from the store, with the jobs and failures that it keeps of its past.

        Results stay until they expire. The next put begins the queue again.

        Returns:
            False if it was not there.

        Raises:
            ResponseError: The queue holds jobs or dead jobs, workers wait for its jobs, or a schedule puts jobs into
                it; the error says which. Nothing changed.
            Unsupported: The server of a shared store is too old; nothing changed.
        """
        return bool(self._backend.ask(Remove()))

    def purge(self) -> int:
        """Delete every job that is not in flight, delayed jobs too.

        Returns:
            How many. If the queue's stream is damaged in the checkpoint, the stream is deleted as a whole and its jobs
            are not counted.
        """
        total, more = 0, True
        while more:
            dropped, more = self._backend.ask(Purge())
            total += dropped
        return total
