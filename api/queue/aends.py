"""Ends: a worker ends a delivery, or keeps it, for asyncio. A shared store's job has the calls of an open store's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidelog.api.queue.ahooks import call_hook
from tidelog.jobs.delivered import Delivered
from tidelog.jobs.retries import RetryJob
from tidelog.jobs.verbs.ending import OPEN, Ending
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.fail import Fail
from tidelog.jobs.verbs.progress import Report
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.retry import Retry
from tidelog.store.durations import Duration


class AsyncEnds(Delivered):
    """The verbs about a delivery that need nothing but the job. A class that inherits it adds `_end`."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _reports(self, verb: Report) -> bool: ...

    async def _end(self, verb: Ending) -> bool:
        """Whether the worker still held the job, once that has reached the store's durability level."""
        raise NotImplementedError

    async def _fails(self, verb: Ending, error: str | BaseException, left: bool = False) -> bool:
        """As `_end`, for a delivery that failed. `left`: the error left the block, and is logged."""
        again = None
        if self._on_retry is not None and isinstance(verb, Retry):
            again = verb.timed(self._row, self._options, self.deliveries)
        held = await self._end(again or verb)
        if left and isinstance(error, BaseException):
            (self._failed if held else self._too_late)(error)
        if again is not None and held:
            given = RetryJob(error, delay=again.pause) if isinstance(error, str) else error
            name = self._options.name
            await call_hook(name, "on_retry", self._on_retry, self, given, again.pause)
        return held

    async def settle(self, verb: Ending) -> bool:
        """End the delivery, or keep it, as a request says: for a run whose process works on the job.

        Returns:
            False if the lease was lost.
        """
        return await (self._fails(verb, verb.error) if isinstance(verb, Retry) else self._end(verb))

    async def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. The job is retried, or becomes a dead job after the last delivery.

        Args:
            reason: Text or exception to record as evidence.
            delay: Seconds or a timedelta before the retry; None = a pause that grows with each delivery.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `delay` is invalid.
        """
        return await self._fails(Retry.of(reason, delay), reason)

    async def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job.

        Args:
            reason: Text or exception to record as evidence.

        Returns:
            False if the lease was lost.
        """
        return await self._end(Fail.of(reason))

    async def release(self) -> bool:
        """Give the job back as if it had not been delivered. It is due at once.

        Returns:
            False if the lease was lost.
        """
        return await self._end(Release())

    async def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while, even if this process ends. Also extends a time limit.

        Args:
            seconds: Seconds or a timedelta from now. An earlier extension that lasts longer stays.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `seconds` is invalid.
        """
        verb = Extend.of(seconds)
        held = await self._end(verb)
        if held:  # for the run that keeps the limit
            self._extended(time.monotonic() + verb.length)
        return held

    async def progress(self, fraction: float, text: str = "") -> bool:
        """Tell how far the job has come. `Queue.job`, `Handle.progress` and the console show it until the job ends.

            await job.progress(0.4, "page 4 of 10")

        At most one record a second is made of a job. A report that comes earlier is recorded a second later, or when
        the job is given back, unless a newer one takes its place.

        Args:
            fraction: From 0 to 1.
            text: At most 500 characters.

        Returns:
            False if the lease was lost, as far as the worker knows.

        Raises:
            DataError: An argument is invalid.
            Unsupported: The server of a shared store is too old.
        """
        report = Report.of(fraction, text)
        if self.state != OPEN:
            return False
        return not self._reports(report) or await self._end(report)
