"""Whom to answer when a blocked read is served: a thread that sleeps, or a task of an event loop (see `store.aio`).
And the bell that wakes a thread of the store's own.

The store serves a waiter under its lock, from whichever thread woke it, and calls `deliver` or `fail` once.
`nudge` wakes the caller early with nothing, to look at its timers again. All three are called with the lock held, never
block and never raise: what happens to one caller must not keep the next one from being served.
"""

from __future__ import annotations

import threading

from tidelog.aof.log import Log
from tidelog.engine.reply import Reply

WAIT_SECONDS_MAX = threading.TIMEOUT_MAX  # about 292 years; what a lock can take


class Caller:
    """One blocked call.

    done     it was served: `answer` is (reply, what has to hold before it may leave), or `error` is set
    gone     it does not wait any more: whatever it is served, nobody would get
    thread   the thread that is to wait, 0 for a task
    """

    __slots__ = ("done", "gone", "thread", "answer", "error")

    def __init__(self, thread: int = 0) -> None:
        self.done = self.gone = False
        self.thread = thread
        self.answer: tuple[Reply, tuple[Log, int, bool]] | None = None
        self.error: BaseException | None = None

    def reset(self) -> None:
        """The call is over, and its caller makes another one. For callers that keep nothing else of a call."""
        self.done = self.gone = False
        self.answer = self.error = None

    def deliver(self, reply: Reply, promise: tuple[Log, int, bool]) -> None:
        """The call is answered."""
        self.answer = reply, promise
        self.done = True
        self.nudge()

    def fail(self, error: BaseException) -> None:
        """The call ends with an exception."""
        self.error, self.done = error, True
        self.nudge()

    def nudge(self) -> None:
        """Wake the caller."""
        raise NotImplementedError


class ThreadCaller(Caller):
    """A thread, asleep on a lock of its own."""

    __slots__ = ("_gate", "_open")

    def __init__(self) -> None:
        super().__init__(threading.get_ident())
        self._gate = threading.Lock()
        self._gate.acquire()
        self._open = False

    def nudge(self) -> None:
        if not self._open:
            self._open = True
            self._gate.release()

    def sleep(self, seconds: float | None) -> None:
        """Until nudged, or for so long; None = for ever. Interruptible by signals."""
        if self._gate.acquire(True, -1 if seconds is None else min(seconds, WAIT_SECONDS_MAX)):
            self._open = False


class Bell:
    """What a thread of the store waits for; one ring is for one wait.

    In place of `threading.Event`, whose lock is taken by Python code: an interrupt that strikes there leaves it taken,
    and whoever sets it or waits from then on hangs. Here that happens in C.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End a wait, or the next one. Twice is as good as once."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # by another thread, since the line above
                pass

    def wait(self, seconds: float | None = None) -> None:
        """Until it rings, or for so long; None = for ever."""
        self._lock.acquire(True, -1 if seconds is None else min(seconds, WAIT_SECONDS_MAX))
