"""Callers of blocked reads: a thread that sleeps, or a task of an event loop (tasks.py).

Also Bell, which wakes a thread of the store.

The store serves a waiter under its lock, in the thread that woke it, and calls `deliver` or `fail` once. `nudge` wakes
the caller without an answer, so that it looks at its timers. All three are called with the lock held, never block and
never raise: a problem of one caller must not keep the next one from being served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tidelog.aof.log import Log
from tidelog.engine.reply import Reply

# Identifies the holder of a job. For a thread: its ident. For a task: the ident of its loop's thread, and a weak
# reference to the task.
Holder = int | tuple[int, Callable[[], Any]]
WAIT_SECONDS_MAX = threading.TIMEOUT_MAX  # about 292 years; what a lock can take


def is_other(holder: Holder, me: Holder) -> bool:
    """Whether a job is in the hands of another living thread or task, which may still settle it while `me` waits."""
    if isinstance(holder, int):
        mine = me if isinstance(me, int) else me[0]
        return holder != mine and any(holder == thread.ident for thread in threading.enumerate())
    thread, reference = holder
    task = reference()
    if task is None or task.done():
        return False
    # While this thread sleeps, none of its tasks can run. While one task sleeps, the other tasks of its loop can.
    return thread != me if isinstance(me, int) else task is not me[1]()


class Caller:
    """One blocked call.

    done     served: `answer` is (reply, promise), or `error` is set
    gone     no longer waiting: an answer would be lost
    thread   the waiting thread, 0 for a task
    """

    __slots__ = ("done", "gone", "thread", "answer", "error")

    def __init__(self, thread: int = 0) -> None:
        self.done = self.gone = False
        self.thread = thread
        self.answer: tuple[Reply, tuple[Log, int, bool]] | None = None
        self.error: BaseException | None = None

    def reset(self) -> None:
        """Reuse the object for the caller's next call. Only for callers that keep no other state of a call."""
        self.done = self.gone = False
        self.answer = self.error = None

    def deliver(self, reply: Reply, promise: tuple[Log, int, bool]) -> None:
        """Answer the call."""
        self.answer = reply, promise
        self.done = True
        self.nudge()

    def fail(self, error: BaseException) -> None:
        """End the call with an exception."""
        self.error, self.done = error, True
        self.nudge()

    def nudge(self) -> None:
        """Wake the caller."""
        raise NotImplementedError


class ThreadCaller(Caller):
    """A thread that sleeps on its own lock."""

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
        """Sleep until nudged, or for `seconds`; None = for ever. Signals interrupt it."""
        if self._gate.acquire(True, -1 if seconds is None else min(seconds, WAIT_SECONDS_MAX)):
            self._open = False


class Bell:
    """A thread of the store waits for it; one ring ends one wait.

    Used instead of `threading.Event`, which takes its lock in Python code: an interrupt there leaves the lock taken,
    and every later set or wait hangs. A plain lock is taken in C.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End the current wait, or the next one. Ringing twice is the same as once."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:  # another thread released it since the check
                pass

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it rings, or for `seconds`; None = for ever."""
        self._lock.acquire(True, -1 if seconds is None else min(seconds, WAIT_SECONDS_MAX))
