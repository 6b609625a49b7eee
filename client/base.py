"""Base: the part of a shared store that its pipelines and queues use."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, NamedTuple

from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import Duration, patience
from tidelog.store.lifetime import DRAIN_SECONDS

BLOCK_S: Final = 20.0  # a call that blocks for longer asks again after this time


def slice_s(until: float | None) -> float:
    """Seconds for which a server may block a call that waits until a time of the monotonic clock; None = for ever."""
    return BLOCK_S if until is None else min(BLOCK_S, max(0.0, until - time.monotonic()))


class Inside(NamedTuple):
    """The parts of a view on a shared store that queues and schedules use. `call` runs a command."""

    link: Link
    keeper: Keeper
    db: int
    call: Callable[..., Any]


class Base:
    """A view on a shared store: a database, and the form of texts in replies."""

    _call: Callable[..., Any]

    def __init__(self, link: Link, keeper: Keeper, decode: bool, db: int) -> None:
        self._link, self._keeper = link, keeper
        self._decode = decode
        self._db = db

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._link.closed

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect. Closing twice is allowed.

        The store stays open in the process that serves it. The queues stop handing out jobs; then the call waits for
        the jobs that other living threads and tasks of this process hold. Jobs that are left are given up: a worker of
        the same name gets them at once, others when the lease is over.

        Args:
            drain: Seconds or a timedelta to wait for those jobs; None = for ever, 0 = not at all.

        Returns:
            How many of those jobs were left. They are delivered again, and so are the caller's own.

        Raises:
            DataError: `drain` is not a duration.
        """
        return self._close(drain, get_ident())

    def _inside(self) -> Inside:
        return Inside(self._link, self._keeper, self._db, self._call)

    def _close(self, drain: Duration | None, me: Holder) -> int:
        limit = patience("drain", drain)
        left = 0
        try:
            if not self.closed:
                left = self._keeper.drain(limit, me)
        finally:  # an interrupt ends the wait, not the closing
            self._keeper.close()
            self._link.close()
        return left


def inside(face: Base) -> Inside:
    """The parts of a view that queues and schedules use."""
    return face._inside()
