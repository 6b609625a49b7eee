"""Clock: time that stands still until a test moves it.

The wall clock is kept in whole microseconds, as in a datetime, so that the milliseconds of IDs and expiry are exact.
The monotonic clock is kept in nanoseconds and gets a little extra with each advance. Waiting code computes deadlines
in floats: a wait of 0.2 seconds that starts after advance(0.1) must end at advance(0.2) despite rounding.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from tidelog.store.errors import DataError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WALL_MAX = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
# the monotonic clock starts at one day, because its origin is arbitrary
_UPTIME_NS = 86_400 * 10**9


class Clock:
    """A clock for stores (`testing.store(clock=...)`, `tidelog.open(..., clock=...)`) that only the test moves.

    Several stores may share a clock, and any thread may move it. While it stands still, no key expires, no blocked call
    times out and no pause ends, however long the test takes.

    Args:
        start: Initial wall-clock time: a datetime with a time zone, 1970 or later; None = 2026-01-01 UTC.

    Raises:
        DataError: `start` is anything else.

    Attributes:
        manual: True: the time changes only when a test moves it.
    """

    manual = True  # see tidelog.store.clock.Clock

    def __init__(self, start: datetime | None = None) -> None:
        if start is None:
            start = START
        if not isinstance(start, datetime) or start.utcoffset() is None or start < EPOCH:
            raise DataError(
                f"start must be a datetime with a time zone, 1970 or later, not {start!r}"
            )
        self._wall_us = (start - EPOCH) // _MICROSECOND
        self._monotonic_ns = _UPTIME_NS
        self._callbacks: list[weakref.WeakMethod[Callable[[], object]]] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Clock at {self.now().isoformat()}>"

    # --- for tests

    def now(self) -> datetime:
        """The wall-clock time, in UTC."""
        return EPOCH + timedelta(microseconds=self._wall_us)

    def advance(self, seconds: float) -> None:
        """Let time pass: advance the wall and the monotonic clock, and wake the calls whose deadlines passed.

        Waiting calls have been signalled when this returns; they continue in their own threads and tasks. A call that
        starts to block after this waits from the new time: make sure that it blocks (`db.info()["blocked_clients"]`)
        before you move the clock.

        Args:
            seconds: How much time passes, 0 or more.

        Raises:
            DataError: `seconds` is negative or not a finite number, or the wall clock would pass the year 9999.
        """
        _check("advance", seconds)
        if seconds < 0:
            raise DataError(
                f"advance({seconds!r}): time cannot run backwards; use jump({seconds!r}) to set the wall clock back"
            )
        self._move("advance", seconds, seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP might. No time passes.

        A store that has seen a later time continues from that time, at the speed of the monotonic clock.

        Args:
            seconds: How far to set it; negative = back.

        Raises:
            DataError: `seconds` is not a finite number, or the wall clock would leave the years 1970 to 9999.
        """
        _check("jump", seconds)
        self._move("jump", seconds, 0)

    # --- for stores: see tidelog.store.clock.Clock

    def time_ns(self) -> int:
        """The wall-clock time in nanoseconds since 1970. For stores."""
        return self._wall_us * 1000

    def monotonic(self) -> float:
        """Seconds since an arbitrary origin; never decreases. For stores."""
        return self._monotonic_ns / 1e9

    def ticked(self, callback: Callable[[], object]) -> None:
        """Call the bound method `callback` after each move of the clock, in the thread that moved it. For stores.

        The method is held weakly.
        """
        with self._lock:
            self._callbacks.append(weakref.WeakMethod(callback))

    def _move(self, what: str, wall: float, passed: float) -> None:
        with self._lock:
            wall_us = self._wall_us + round(wall * 1_000_000)
            if not 0 <= wall_us <= _WALL_MAX:
                raise DataError(
                    f"{what}({wall!r}): the clock must stay within the years 1970 to 9999"
                )
            if passed:
                hair = 1 + int(2e9 * math.ulp(self._monotonic_ns / 1e9 + passed))
                self._monotonic_ns += round(passed * 1_000_000_000) + hair
            self._wall_us = wall_us
            self._callbacks = [held for held in self._callbacks if held() is not None]
            callbacks = list(self._callbacks)
        # Call the callbacks without the lock, because a store reads the clock while it holds its own lock. The
        # ExitStack calls all of them even if one raises. It unwinds from its end, so `reversed` keeps the order of
        # registration.
        with ExitStack() as calls:
            for held in reversed(callbacks):
                callback = held()
                if callback is not None:
                    calls.callback(callback)


def _check(what: str, seconds: float) -> None:
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise DataError(f"{what}({seconds!r}): seconds must be a finite number")
