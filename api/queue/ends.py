"""Ends: a worker ends a delivery, or keeps it, for threads. A shared store's job has the calls of an open store's.

Generated from aends.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.fail import Fail
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.retry import Retry
from tidelog.store.durations import Duration


class Ends:
    """The verbs about a delivery that need nothing but the job. A class that inherits it adds `_end`."""

    __slots__ = ()

    def _end(self, verb: Ending) -> bool:
        """Whether the worker still held the job, once that has reached the store's durability level."""
        raise NotImplementedError

    def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. The job is retried, or becomes a dead job after the last delivery.

        Args:
            reason: Text or exception to record as evidence.
            delay: Seconds or a timedelta before the retry; None = a pause that grows with each delivery.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `delay` is invalid.
        """
        return self._end(Retry.of(reason, delay))

    def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job.

        Args:
            reason: Text or exception to record as evidence.

        Returns:
            False if the lease was lost.
        """
        return self._end(Fail.of(reason))

    def release(self) -> bool:
        """Give the job back as if it had not been delivered. It is due at once.

        Returns:
            False if the lease was lost.
        """
        return self._end(Release())

    def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while, even if this process ends. Also extends a time limit.

        Args:
            seconds: Seconds or a timedelta from now. An earlier extension that lasts longer stays.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `seconds` is invalid.
        """
        return self._end(Extend.of(seconds))
