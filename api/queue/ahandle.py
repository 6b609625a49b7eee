"""AsyncHandle: what `put` returns. It is the job's ID, and knows the queue, which can be asked for the job's result."""

from __future__ import annotations

from typing import Any, Protocol, Self

from tidelog.jobs.progress import Progress
from tidelog.jobs.status import JobStatus
from tidelog.store.durations import Duration


class AsyncAsked(Protocol):
    """A queue for asyncio, embedded or shared."""

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """The result of a job."""

    async def job(self, job_id: str) -> JobStatus | None:
        """The status of a job."""


class AsyncHandle(str):
    """The ID of a job that was put, `ms-seq`: a str like any other, with methods of its own.

    handle = await thumbnails.put("cat.png")
    print(await handle.result(timeout=30))
    """

    __slots__ = ("asked",)
    asked: AsyncAsked
    """The queue that answers its methods."""

    @classmethod
    def of(cls, queue: AsyncAsked, job_id: str) -> Self:
        """The handle of a job of this queue."""
        made = cls(job_id)
        made.asked = queue
        return made

    @property
    def id(self) -> str:
        """The ID as a plain str."""
        return str(self)

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the result of the job. As `AsyncQueue.result`.

        Args:
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: `timeout` is invalid.
        """
        return await self.asked.result(self, timeout)

    async def progress(self) -> Progress | None:
        """The last report of the worker, how far the job has come.

        Returns:
            None if no worker has said it, or the job has ended. `AsyncQueue.job` tells which.

        Raises:
            Unsupported: The server of a shared store is too old.
        """
        found = await self.asked.job(self)
        return None if found is None else found.progress

    def __reduce__(self) -> Any:
        return str, (str(self),)
