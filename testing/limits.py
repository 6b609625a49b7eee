"""Limits: a program under test that hangs is ended, and one that forks does not come back twice.

Only the main thread can be interrupted in Python, by a signal whose handler raises. A thread sends it when the time is
over. Programs that are called in another thread have no limit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from tidelog.testing.lines import stacks

SIGNAL: Final = signal.SIGURG  # whose default is to do nothing, and which no test framework uses
AGAIN_S: Final = 1.0  # between two signals, if the program catches what the handler raises
FORKED: Final = 70  # the exit code of a process that came back from a fork


class Hung(BaseException):
    """The program did not end in time. No Exception, so that the program does not catch it by accident."""


class Limit:
    """A context in which no program may take longer than some seconds.

    One thread serves all programs. It looks at the time at most once in `seconds`, so a program costs it nothing.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: float | None = None  # of the program that runs
        self._name = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tidelog-crash-limit", daemon=True)
        self._here = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Limit:
        if self._here:
            self._before = signal.signal(SIGNAL, self._interrupt)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._here:
            self._over.set()
            self._thread.join()
            signal.signal(SIGNAL, self._before or signal.SIG_DFL)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """A program runs; its name is for the text. Raises Hung."""
        self._name = name
        self._ends = time.monotonic() + self._seconds
        try:
            yield
        finally:
            self._ends = None

    def _watch(self) -> None:
        wait = self._seconds
        while not self._over.wait(wait):
            ends = self._ends
            wait = self._seconds if ends is None else ends - time.monotonic()
            if wait <= 0:
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
                wait = AGAIN_S

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._ends is None or time.monotonic() < self._ends:
            return  # it ended while the signal was on its way
        where = "".join(f"\n  {line}" for line in stacks(frame))
        raise Hung(
            f"{self._name} did not end within {self._seconds:g} s (--crash-timeout). It stands at{where}"
        )


@contextmanager
def one_process(name: str) -> Iterator[None]:
    """A process that the program forks ends here instead of going on with the test."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            if sys.exception() is not None:
                traceback.print_exc()
            text = (
                f"a process that {name} forked came back from it, and is ended; call os._exit in it"
            )
            print(text, file=sys.stderr, flush=True)
            os._exit(FORKED)
