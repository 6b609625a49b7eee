"""Delivered: a job in a worker's hands, embedded or of a shared store: its state, and what the log says of its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final

from tidelog.jobs import rows
from tidelog.jobs.cancels import Cancels
from tidelog.jobs.job_facts import JobFacts
from tidelog.jobs.retries import GiveUp, RetryJob
from tidelog.jobs.status import CANCELLED

if TYPE_CHECKING:
    from tidelog.jobs.options import Options

log: Final = logging.getLogger("tidelog.queue")


class Delivered(JobFacts):
    """A class that inherits it has what is declared here."""

    __slots__ = ("_until",)
    _until: float

    if TYPE_CHECKING:

        @property
        def _state(self) -> str: ...
        @property
        def _reraises(self) -> bool: ...
        @property
        def _on_retry(self) -> Any: ...
        @property
        def _options(self) -> Options: ...
        @property
        def _cancels(self) -> Cancels: ...
        @property
        def _delivery_key(self) -> Hashable: ...

    @property
    def queue_options(self) -> Any:
        """The options of its queue, as `jobs.options` has them, for a run."""
        return self._options

    @property
    def state(self) -> str:
        """`open`; `acked`; `given` (back for a retry, or dead); `lost` to another worker; or `cancelled`."""
        return CANCELLED if self.cancelled else self._state

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled while the worker had it, so that nothing the worker says of it counts any more.

        It takes less than a microsecond. A worker of a shared store learns it when it renews its leases, within a
        second or so, or when it settles the job.
        """
        told = self._cancels.told
        return bool(told) and self._delivery_key in told

    def on_cancel(self, call: Callable[[], object]) -> None:
        """Have a function called once when the job is cancelled, at once if it was.

            job.on_cancel(process.kill)

        It is called in whichever thread learns of the cancel, so it should be short, and not wait for the store. An
        exception that it raises is logged. A job has one such function: another one takes its place.

        Args:
            call: A function without arguments.
        """
        self._cancels.listen(self._delivery_key, "", call)

    @property
    def extended_until(self) -> float | None:
        """Monotonic seconds (`time.monotonic`) until which `extend` keeps the job; None if it was not called."""
        return getattr(self, "_until", None)

    def _extended(self, until: float) -> None:
        """The worker keeps the job until then, in monotonic seconds, as the run that watches its limit of time asks."""
        self._until = max(until, self.extended_until or until)

    def __repr__(self) -> str:
        return (
            f"<job {self.id} of {self._options.name!r}, delivery {self.deliveries}, {self._state}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            "a job cannot be pickled: its lease belongs to this process. Send its value, and settle the job here"
        )

    # --- the with block

    def _swallows(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and not self._reraises

    def _failed(self, error: BaseException) -> None:
        """Log an exception that left the block."""
        if self.cancelled:
            self._was_cancelled()
        elif isinstance(error, RetryJob | GiveUp):  # its block said so; a death has its own line
            log.info(
                "queue %s: job %s, delivery %d, raised %s",
                *(self._options.name, self.id, self.deliveries, rows.evidence(error)[0]),
            )
        elif self._swallows(error):
            log.error(
                "queue %s: job %s failed at delivery %d: %s",
                *(self._options.name, self.id, self.deliveries, rows.evidence(error)[0]),
                exc_info=rows.printable(error),
            )

    def _kept(self, failure: Exception) -> None:
        """Log that the job could not be given back."""
        said = str(failure)  # the frames of the error itself would keep the job
        log.warning(
            "queue %s: job %s could not be returned; it will be delivered again when its lease ends: %s",
            *(self._options.name, self.id, said),
        )

    def _too_late(self, error: BaseException) -> None:
        """Log an exception that left the block after the job was settled; there is nothing to retry."""
        if self.cancelled:
            self._was_cancelled()
        elif self._swallows(error):
            log.error(
                "queue %s: job %s was already %s when its block raised: %s",
                *(self._options.name, self.id, self._state, rows.evidence(error)[0]),
                exc_info=rows.printable(error),
            )

    def _was_lost(self) -> None:
        if self.cancelled:
            self._was_cancelled()
            return
        log.warning(
            "queue %s: job %s was done too late: its lease had been lost to another worker",
            *(self._options.name, self.id),
        )

    def _was_cancelled(self) -> None:
        log.info(
            "queue %s: job %s was cancelled while its worker had it",
            *(self._options.name, self.id),
        )
