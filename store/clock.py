"""Clock: the source of time of a store. The system's, unless a test passes its own (tidelog.testing).

A store uses two clocks. The wall clock gives stored times (IDs, delivery times, expiry) and may jump. The monotonic
clock is for all waiting inside the process and may not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


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


class SystemClock:
    """The system's clocks."""

    manual = False
    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    def ticked(self, callback: Callable[[], object]) -> None:
        """Do nothing: the system's clock is never moved by hand."""


SYSTEM = SystemClock()
