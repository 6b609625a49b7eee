"""An interrupt at a chosen line of the queue."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tidelog.store import queue as queue_package

QUEUE_FILES = str(Path(queue_package.__file__).parent)


class Trap:
    """Raises KeyboardInterrupt at the `at`-th line that is executed in the queue's modules.

    seen         lines that are passed over, where each is struck only once
    swallowed    it struck in a `__del__`, out of which nothing comes
    unraisable   what else could not be raised there
    """

    def __init__(self, at: int, seen: set[str] | None = None) -> None:
        self.left, self.where = at, ""
        self.seen = set[str]() if seen is None else seen
        self.swallowed = False
        self.unraisable: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename.startswith(QUEUE_FILES) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and not self.where:
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            # An interrupt cannot strike there: see tests/store/faults/test_broken_calls.py.
            if not text.startswith(("with ", "try:")):
                where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: {text}"
                if where in self.seen:
                    return self.line
                if self.left == 0:
                    self.where = where
                    self.swallowed = in_a_finalizer(frame)
                    sys.settrace(None)
                    raise KeyboardInterrupt
                self.left -= 1
        return self.line

    def run(self, call: Callable[[], object]) -> bool:
        """Whether the call was interrupted."""
        before, hook = sys.gettrace(), sys.unraisablehook
        sys.unraisablehook = self._unraisable
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            sys.unraisablehook = hook
        return False

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
