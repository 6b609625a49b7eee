"""An interrupt at a chosen line of the queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.traps import CallTrap, Trap

from tidelog import jobs
from tidelog.api import queue

QUEUE_FILES = tuple(str(Path(str(package.__file__)).parent) for package in (jobs, queue))


def of_the_queue(code: CodeType) -> bool:
    return code.co_filename.startswith(QUEUE_FILES)


class QueueTrap(Trap):
    """Raises KeyboardInterrupt at the `at`-th line that runs in the queue's modules.

    swallowed    it struck in a `__del__`, out of which nothing comes
    unraisable   the other errors that could not be raised there
    """

    def __init__(self, at: int, seen: Collection[str] = ()) -> None:
        super().__init__(at, of_the_queue, seen=seen)
        self.swallowed = False
        self.unraisable: list[str] = []

    def strike(self, frame: FrameType) -> None:
        self.swallowed = in_a_finalizer(frame)
        super().strike(frame)

    def run(self, call: Callable[[], object]) -> None:
        hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        try:
            super().run(call)
        finally:
            sys.unraisablehook = hook

    def _unraisable(self, told: Any) -> None:
        # Not the exception itself: its frames would keep jobs alive.
        if not issubclass(told.exc_type, KeyboardInterrupt):
            self.unraisable.append(f"{told.exc_value!r} in {told.object!r}")


def in_a_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class QueueCallTrap(CallTrap, QueueTrap):
    """The same behind each call there."""
