"""Handle: what `put` returns. It is the job's ID, and knows the queue, which can be asked for the job's result.

Generated from ahandle.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

from tidelog.jobs.progress import Progress
from tidelog.jobs.status import JobStatus
from tidelog.store.durations import Duration


class Asked(Protocol):
    """A queue for threads, embedded or shared."""

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """The result of a job."""

    def job(self, job_id: str) -> JobStatus | None:
        """The status of a job."""


class Handle(str):
    """The ID of a job that was put, `ms-seq`: a str like any other, with methods of its own.

    handle = thumbnails.put("cat.png")
    print(handle.result(timeout=30))
    """

    __slots__ = ("asked",)
    asked: Asked
    """The queue that answers its methods."""

    @classmethod
    def of(cls, queue: Asked, job_id: str) -> Self:
        """The handle of a job of this queue."""
        made = cls(job_id)
        made.asked = queue
        return made

    @property
    def id(self) -> str:
        """The ID as a plain str."""
        return str(self)

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the result of the job. As `Queue.result`.

        Args:
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: `timeout` is invalid.
        """
        return self.asked.result(self, timeout)

    def progress(self) -> Progress | None:
        """The last report of the worker, how far the job has come.

        Returns:
            None if no worker has said it, or the job has ended. `Queue.job` tells which.

        Raises:
            Unsupported: The server of a shared store is too old.
        """
        found = self.asked.job(self)
        return None if found is None else found.progress

    def __reduce__(self) -> Any:
        return str, (str(self),)
