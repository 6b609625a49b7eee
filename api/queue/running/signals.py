"""Signals: SIGTERM and Ctrl-C (SIGINT) end a run of workers in order, and an import that follows a server.

    the first of them                   calls `stop`; the run goes on
    another SIGTERM                     changes nothing
    another Ctrl-C                      puts the earlier handlers back and calls the earlier one, which usually raises
                                        KeyboardInterrupt
    any, in a child of a fork           does what it did before the run: the child begins with the earlier handlers

`run`, its processes (client/processes.py) and `tidelog worker` change handlers through this module, in the main thread
only, since Python refuses it elsewhere, and it puts them back. A signal that the process ignores stays ignored: shells
start a background command so.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar

# SIGINT first: from then on no KeyboardInterrupt can come between two of them
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LOOK_S: Final = 1.0  # between two looks of a thread that waits for news
T = TypeVar("T")
_open: list[Signals] = []  # of the main thread: one, unless a handler runs another queue


class News(Generic[T]):
    """News for the main thread while it waits: of signals, and of threads.

    `put` may interrupt any other call of this object in the same thread, so a signal handler may call it.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[T] = SimpleQueue()
        self.put = self._queue.put

    def get(self, until: float | None = None) -> T:
        """Wait for the next news, until a time (monotonic seconds) or for ever. Raises queue.Empty."""
        while True:
            # Python handles a signal in the main thread between two bytecodes. A signal that another thread received,
            # or that came as this one was about to wait, does not end the wait: so it looks again.
            left = LOOK_S if until is None else min(LOOK_S, max(0.0, until - time.monotonic()))
            try:
                return self._queue.get(timeout=left)
            except Empty:
                if until is not None and time.monotonic() >= until:
                    raise


class Signals:
    """Calls `stop` with the name of a signal, while it is open. Outside the main thread it does nothing.

    `stop` runs in the main thread between any two bytecodes, so it must neither take a lock nor raise.
    """

    def __init__(self, stop: Callable[[str], object]) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}
        self._interrupted = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                before = signal.getsignal(number)
                # None: a handler that was not set from Python, and could not be put back
                if before is not None and before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._came)
            _open.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.put_back()
        if self in _open:
            _open.remove(self)

    def put_back(self) -> None:
        """Set the handlers of before."""
        for number in reversed(SIGNALS):
            # the program may have set a handler of its own meanwhile
            if number in self._before and signal.getsignal(number) == self._came:
                signal.signal(number, self._before[number])

    def _came(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._interrupted:
                self.put_back()
                before = self._before[number]
                if not callable(before):
                    raise KeyboardInterrupt
                before(number, frame)
                return
            self._interrupted = True
        self._stop(signal.Signals(number).name)


def _after_fork_in_child() -> None:
    # a handler of jobs may fork: its child must end when it is told to
    for signals in reversed(_open):
        signals.put_back()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
