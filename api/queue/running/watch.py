"""Watch: notices that a thread works on a job for longer than its limit of time. A thread cannot be stopped, so the
job fails without it, and the run lets another thread take its place.

The thread that looks begins with the first job that has a limit.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from tidelog.aof.threads import start
from tidelog.api.queue.running.hanging import Hanging
from tidelog.api.queue.running.plan import AGAIN_SECONDS, Words
from tidelog.jobs.time_limits import TimeLimitExceeded, exceeded
from tidelog.store.errors import TidelogError

_FOREVER: Final = threading.TIMEOUT_MAX


class Working:
    """One thread at work on one job.

    until       monotonic seconds at which its time is over
    given_up    it was, and another thread gets the place of this one
    over        and the job has failed
    """

    __slots__ = ("number", "job", "limit", "until", "thread", "given_up", "over")

    def __init__(self, number: int, job: Any, limit: float) -> None:
        self.number, self.job, self.limit = number, job, limit
        self.until = time.monotonic() + limit
        self.thread = threading.get_ident()
        self.given_up = self.over = False


class Watch:
    """The watch of one run.

    replace    begins another thread in the place of one that hangs
    hanging    the threads that work on
    """

    def __init__(self, words: Words, told: Hanging, replace: Callable[[int], object]) -> None:
        self._words, self._told, self._replace = words, told, replace
        self._changed = threading.Condition()
        self._working: set[Working] = set()
        self._looks_at = 0.0  # monotonic seconds of the next look; 0.0 = no thread looks yet
        self._closed = False
        self.hanging: set[Working] = set()

    def begin(self, number: int, job: Any, limit: float) -> Working:
        """The calling thread begins with a job. Raises NoThread."""
        working = Working(number, job, limit)
        with self._changed:
            self._working.add(working)
            if not self._looks_at:
                looking = threading.Thread(target=self._look, name="tidelog-watch", daemon=True)
                start(looking, "watch the limits of time")
                self._looks_at = _FOREVER
            if working.until < self._looks_at:
                self._changed.notify()
        return working

    def end(self, working: Working) -> None:
        """The calling thread has ended its work. If `given_up` says that this was too late, its job is settled."""
        with self._changed:
            if not working.given_up:
                self._working.discard(working)
                return
            self._changed.wait_for(lambda: working.over)
            self.hanging.discard(working)
        self._told.note(working.job, hanging=-1)
        self._words.ended_late(working.job, time.monotonic() - working.until, len(self.hanging))

    def close(self) -> None:
        """Look no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    # --- in its thread

    def _look(self) -> None:
        while (working := self._late()) is not None:
            frame = sys._current_frames().get(working.thread)  # noqa: SLF001
            error = exceeded(working.limit).with_traceback(_trace_of(frame))
            del frame
            self._fail(working, error)
            error.__traceback__ = None  # its frames refer to the job
            self._told.note(working.job, hanging=1)
            self._words.hangs(working.job, working.limit, len(self.hanging))
            self._replace(working.number)
            with self._changed:
                working.over = True
                self._changed.notify_all()
            del working, error

    def _late(self) -> Working | None:
        """The next thread whose time is over; None if the run is. From here on it hangs."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for working in self._working:
                    working.until = max(working.until, working.job.extended_until or 0.0)
                    if working.until <= now:
                        working.given_up = True
                        self._working.discard(working)
                        self.hanging.add(working)
                        return working
                self._looks_at = min((each.until for each in self._working), default=_FOREVER)
                self._changed.wait(min(self._looks_at - now, _FOREVER))
        return None

    def _fail(self, working: Working, error: TimeLimitExceeded) -> None:
        while not self._closed:
            try:
                # as if the handler had raised it
                working.job.__exit__(type(error), error, error.__traceback__)
                return
            except TidelogError as failure:
                self._words.passing(failure)
                with self._changed:
                    self._changed.wait(AGAIN_SECONDS)


def _trace_of(frame: FrameType | None) -> TracebackType | None:
    """The stack of a handler, as the traceback of an exception that it raised now."""
    trace = None
    while frame is not None and "/api/queue/running/" not in frame.f_code.co_filename:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return trace
