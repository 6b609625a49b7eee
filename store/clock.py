"""Clock: the source of time of a store. The system's, unless a test passes its own (tidelog.testing).

A store uses two clocks. The wall clock gives stored times (IDs, delivery times, expiry) and may jump. The monotonic
clock is for all waiting inside the process and may not.

Out of the two the store makes its own time, which never goes back (`Landing.tick`). It is the wall clock's, unless a
clock that stood ahead once gave the store later times. Then it leads the wall clock, and the two are for different
things:

    the store's time    IDs, and all that counts by a duration: delay, ttl, retry_after, leases, dedup windows, expiry
    the wall clock      a time that a person named: `at`, cron expressions, intervals
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

# A lead below this is none: the two clocks are read one after the other, and a time server corrects a clock in steps.
LEAP_MS: Final = 1_000
# A lead from here on is kept in the checkpoints. A shorter one ends while the store is closed.
KEPT_MS: Final = 60_000
# A clock that shows an earlier time than 2025-01-01 UTC is not set: this program is younger.
SET_MS: Final = 1_735_689_600_000


class Clock(Protocol):
    """The time, for one or more stores.

    manual      the time only changes when a test moves it. So no thread may sleep for a time; it sleeps until
                `ticked` reports a move
    """

    manual: bool

    def time_ns(self) -> int:
        """Nanoseconds since 1970, as `time.time_ns`."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, as `time.monotonic`."""
        ...

    def ticked(self, callback: Callable[[], object]) -> None:
        """Register a bound method to call, in the mover's thread, whenever the clock is moved. Held weakly."""
        ...


class Times(NamedTuple):
    """The two times of a store, unix ms. `wall` is `store` unless the store's time leads."""

    store: int
    wall: int

    @property
    def lead(self) -> int:
        """How far the store's time is ahead of the wall clock, in ms."""
        return self.store - self.wall


def times(store: int, wall: int) -> Times:
    """The times when the store's is `store` and the machine's clock shows `wall`.

    If that is not set, as on a board without a battery until it hears a time server, the store's time is nearer the
    truth.
    """
    leads = store - wall >= LEAP_MS and wall >= SET_MS
    return Times(store, wall if leads else store)


def resumed(newest: int, wall: int, lead: int) -> int:
    """The store's time when it is opened. `newest`: of its log. `lead`: as its checkpoint says.

    Once the wall clock has passed the newest time, the store's time is the wall clock again. The lead of a clock that
    stands ahead at each start would otherwise be added anew at each start.
    """
    return max(newest, wall + lead) if wall < newest else wall


class SystemClock:
    """The system's clocks."""

    manual = False
    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    def ticked(self, callback: Callable[[], object]) -> None:
        """Do nothing: the system's clock is never moved by hand."""


SYSTEM = SystemClock()
