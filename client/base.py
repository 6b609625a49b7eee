"""Base: the part of a shared store that its pipelines and queues use."""

from __future__ import annotations

from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.store.durations import Duration, patience


class Base:
    """A view on a shared store: a database, and the form of texts in replies."""

    def __init__(self, link: Link, keeper: Keeper, decode: bool, db: int) -> None:
        self._link, self._keeper = link, keeper
        self._decode = decode
        self._db = db

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._link.closed

    def close(self, drain: Duration | None = 0) -> int:
        """Disconnect. Closing twice is allowed.

        The store stays open in the process that serves it. Jobs that this process still holds are given up: a worker of
        the same name gets them at once, others when the lease is over.

        Args:
            drain: Take no more jobs, and wait so long (seconds or a timedelta) until this process holds none, the
                caller's own included. None = for ever, 0 = not at all.

        Returns:
            How many jobs were given up.

        Raises:
            DataError: `drain` is not a duration.
        """
        limit = patience("drain", drain)
        if limit != 0 and not self.closed:
            self._keeper.drain(limit)
        left = self._keeper.close()
        self._link.close()
        return left
