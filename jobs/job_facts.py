"""The facts that a job in a worker's hands tells of itself: the same on all faces."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tidelog.jobs import rows
from tidelog.jobs.time_limits import time_limit_of

if TYPE_CHECKING:
    from tidelog.engine.api import EntryRow
    from tidelog.jobs.retries import RetryPolicy
    from tidelog.jobs.work.known import JobEntry


class JobFacts:
    """A job as its row tells. A class that inherits it has `entry`: the job's ID, its row and its deliveries."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def entry(self) -> JobEntry: ...

    @property
    def _number(self) -> int:
        return self.entry[0]

    @property
    def _row(self) -> EntryRow:
        return self.entry[1]

    @property
    def deliveries(self) -> int:
        """How often the job was delivered, this delivery included: 1 at the first."""
        return self.entry[2]

    @property
    def id(self) -> str:
        """The job's ID, `ms-seq`."""
        return rows.text(self._number)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were put with it."""
        return rows.headers_of(self._row) if len(self._row) > 2 else {}

    @property
    def origin(self) -> str | None:
        """The ID that `put` returned, if a delayed or a redriven job has another one since; None for any other."""
        found = rows.origin_of(self._row)
        return None if found is None else rows.shown(found)

    @property
    def dedup_id(self) -> str | None:
        """The dedup ID that it was put with, if the mode was `until-done` or `replace`; None for any other."""
        found = rows.fields_of(self._row).get(rows.DEDUP)
        return None if found is None else rows.shown(found)

    @property
    def priority(self) -> int:
        """The priority that it was put with, from 0 to 9."""
        return rows.priority_of(self._row) if len(self._row) > 2 else 0

    @property
    def key(self) -> str | None:
        """The key that it was put with; None if it has none."""
        return rows.shown_key(self._row) if len(self._row) > 2 else None

    @property
    def retry(self) -> RetryPolicy | None:
        """The retry policy that it was put with; None if it has none, so that of the queue counts."""
        return rows.retry_of(self._row) if len(self._row) > 2 else None

    @property
    def time_limit(self) -> float | None:
        """The limit of time that it was put with, in seconds; None if it has none, so that of the run counts."""
        return time_limit_of(self._row) if len(self._row) > 2 else None

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return rows.moment(self._number >> 64)
