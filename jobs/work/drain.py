"""Drain: before a store is closed, wait for the jobs that other threads and tasks hold.

A drain has three steps:

    begin     the queues stop handing out jobs: workers that wait or ask get StoreClosed, and jobs that were fetched but
              not handed out go back. Everything else still works: acknowledgements, retries, puts
    look      repeated: count the jobs that they still hold
    end       return how many were left, and log a line if there are any

A job is in the hands of the thread or task that took it, or that entered its `with` block last. The caller does not
wait for its own jobs, which it cannot finish meanwhile, nor for jobs whose thread or task has ended. Jobs that are left
stay pending, as after a crash: a worker of the same name gets them at once, others when the lease is over.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from tidelog.jobs.work.fetch import Fetch, closing
from tidelog.jobs.work.known import Delivery, Known
from tidelog.store.clock import SYSTEM
from tidelog.store.commit.callers import Caller, Holder, is_other
from tidelog.store.commit.core import Core

# How often the drain looks without being woken. Nothing wakes it when the `with` block of a batch ends, when a job is
# dropped, or when a thread that held a job ends.
LOOK_SECONDS: Final = 0.05

log = logging.getLogger("tidelog.queue")


class Drained(Protocol):
    """The methods of the leases that a drain calls."""

    def stop(self) -> None:
        """Stop all queues from handing out jobs."""

    def queues(self) -> list[Known]:
        """The queues that are in use or were lately."""

    def take_back(self) -> None:
        """Return jobs that were fetched but not handed out."""

    def beat(self) -> float | None:
        """Write what is gathered and left behind. Returns the seconds until the next beat."""


class Drain:
    """One caller's wait before it closes a store.

    limit     longest wait in seconds, None = for ever
    caller    sleeps meanwhile; it is nudged when a job is settled
    me        the thread or task that closes the store
    """

    def __init__(
        self, core: Core, leases: Drained, limit: float | None, caller: Caller, me: Holder
    ) -> None:
        self._core, self._leases = core, leases
        self._me, self._caller = me, caller
        # Use real time even with a manual clock, because a real caller waits.
        self._until = None if limit is None else SYSTEM.monotonic() + limit
        self._left: dict[str, int] = {}

    def begin(self) -> None:
        """Stop handing out jobs."""
        core, leases = self._core, self._leases
        leases.stop()
        known = leases.queues()
        for one in known:
            one.room[self._caller] = None
        with core.lock:
            for waiter in core.waiting.waiters():
                if isinstance(waiter.work, Fetch):
                    core.waiting.remove(waiter)
                    waiter.owner.fail(closing())
        leases.take_back()
        leases.beat()

    def look(self) -> float | None:
        """Seconds to sleep before the next look, unless nudged. None: the wait is over."""
        self._left = {}
        for known in self._leases.queues():
            count = sum(self._others(delivery) for delivery in known.deliveries())
            if count:
                self._left[known.name] = self._left.get(known.name, 0) + count
        if not self._left or self._core.ended:
            return None
        if self._until is None:
            return LOOK_SECONDS
        left = self._until - SYSTEM.monotonic()
        return min(LOOK_SECONDS, left) if left > 0 else None

    def end(self) -> int:
        """How many jobs other threads and tasks held at the last look."""
        for known in self._leases.queues():
            known.room.pop(self._caller, None)
        total = sum(self._left.values())
        if total:
            where = ", ".join(f"{name}: {count}" for name, count in sorted(self._left.items()))
            log.warning(
                "the store was closed while other threads and tasks held %d jobs (%s); these jobs will be delivered "
                "again",
                *(total, where),
            )
        return total

    def _others(self, delivery: Delivery) -> int:
        """How many of a delivery's jobs other living threads and tasks hold."""
        told = {*delivery.finished, *(job for job, _, _ in list(delivery.jobs))}
        hands, holder = delivery.hands, delivery.holder
        return sum(
            is_other(hands.get(job, holder), self._me)
            for job in list(delivery.open)
            if job not in told
        )
