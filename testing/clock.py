"""Clock: time that stands still until a test moves it.

The wall clock is kept in whole microseconds, as a datetime is, so that milliseconds, of which IDs and expiry are made,
come out exact. The monotonic one is kept in nanoseconds and gains a hair with every advance: whoever waits computes
a deadline in floats, and after advance(0.1), a wait of 0.2 seconds and advance(0.2) it has to be over.
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
_UPTIME_NS = 86_400 * 10**9  # a monotonic clock counts from whenever; here, from a day before


class Clock:
    """A clock for stores (`testing.store(clock=...)`, `tidelog.open(..., clock=...)`), moved by hand.

    start   what the wall clock shows at first: a datetime with a time zone, 1970 or later; None = 2026-01-01 UTC

    Several stores may share one, and any thread may move it. While nobody does, no key expires, no blocked call times
    out and no pause ends, however long the test takes. Raises DataError if `start` is no such datetime.
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
        """What the wall clock shows, in UTC."""
        return EPOCH + timedelta(microseconds=self._wall_us)

    def advance(self, seconds: float) -> None:
        """Let so much time pass, on the wall and the monotonic clock. Wakes whoever was waiting for that.

        Those who wait are told when this returns, and go on in their own threads and tasks. A call that begins to
        block later waits from then on: see that it does block (`db.info()["blocked_clients"]`) before you
        move the clock. Raises DataError for less than nothing.
        """
        _check("advance", seconds)
        if seconds < 0:
            raise DataError(
                f"advance({seconds!r}): time does not run backwards; jump({seconds!r}) sets the wall clock back"
            )
        self._move("advance", seconds, seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative, as an operator or NTP might. No time passes.

        A store that has seen a later time goes on from there, as fast as time passes. Raises DataError if the clock
        would show a time before 1970.
        """
        _check("jump", seconds)
        self._move("jump", seconds, 0)

    # --- for stores: see tidelog.store.clock.Clock

    def time_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._wall_us * 1000

    def monotonic(self) -> float:
        """Seconds since some time ago; they never run backwards."""
        return self._monotonic_ns / 1e9

    def ticked(self, callback: Callable[[], object]) -> None:
        """Have a bound method called, in the mover's thread, whenever the clock was moved. Held weakly."""
        with self._lock:
            self._callbacks.append(weakref.WeakMethod(callback))

    def _move(self, what: str, wall: float, passed: float) -> None:
        with self._lock:
            wall_us = self._wall_us + round(wall * 1_000_000)
            if not 0 <= wall_us <= _WALL_MAX:
                raise DataError(f"{what}({wall!r}): a clock shows the years 1970 to 9999")
            if passed:
                hair = 1 + int(2e9 * math.ulp(self._monotonic_ns / 1e9 + passed))
                self._monotonic_ns += round(passed * 1_000_000_000) + hair
            self._wall_us = wall_us
            self._callbacks = [held for held in self._callbacks if held() is not None]
            callbacks = list(self._callbacks)
        # Without the lock, for a store asks for the time while it holds its own. All are told, even if one raises;
        # a stack unwinds from its end, and they are told in the order in which they came.
        with ExitStack() as calls:
            for held in reversed(callbacks):
                callback = held()
                if callback is not None:
                    calls.callback(callback)


def _check(what: str, seconds: float) -> None:
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise DataError(f"{what}({seconds!r}): seconds must be a number")
