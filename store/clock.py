"""Clock: where a store gets the time from. The system's, unless a test brings one of its own (tidelog.testing).

A store needs two: the wall clock, for what is stored (IDs, delivery times, expiry), which may jump; and the monotonic
one, for everything that waits inside the process, which may not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The time, for one or more stores.

    manual      time stands still between two calls of whoever moves it: nobody may sleep for so and so long,
                only until `ticked` tells that it moved
    """

    manual: bool

    def time_ns(self) -> int:
        """Nanoseconds since 1970, as `time.time_ns`."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, as `time.monotonic`."""
        ...

    def ticked(self, callback: Callable[[], object]) -> None:
        """Have a bound method called, in the mover's thread, whenever the clock was moved. Held weakly."""
        ...


class SystemClock:
    """The system's clocks."""

    manual = False
    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    def ticked(self, callback: Callable[[], object]) -> None:
        """Nobody moves the system's clock."""


SYSTEM = SystemClock()
