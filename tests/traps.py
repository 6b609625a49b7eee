"""Traps: an exception at a chosen line of the code under test, raised by a trace function.

A trap does not strike in the lines of `with` and `try` themselves. No signal strikes there: the interpreter looks for
one only after calls and at jumps back, and takes and releases locks in C. Only tracing can raise in these lines, and
would leave a lock held.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any


@cache
def _place(file: str, line: int) -> str:
    """The name of a line and its text; empty if no trap strikes there."""
    text = linecache.getline(file, line).strip()
    return "" if text.startswith(("with ", "try:")) else f"{Path(file).name}:{line}: {text}"


class Trap:
    """Raises `error` once, at line number `at`, from 0, of the lines that run in the code that `watched` chooses.

    seen    names of lines that do not count
    where   the name of the line that it struck; empty if fewer lines ran
    """

    def __init__(
        self,
        at: int,
        watched: Callable[[CodeType], bool],
        error: type[BaseException] = KeyboardInterrupt,
        seen: Collection[str] = (),
    ) -> None:
        self.left, self.watched, self.error, self.seen = at, watched, error, seen
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.line if self.watched(frame.f_code) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.come(frame)
        return self.line

    def come(self, frame: FrameType) -> None:
        """Strike here, or count the place."""
        place = "" if self.where else _place(frame.f_code.co_filename, frame.f_lineno)
        if place and place not in self.seen:
            if not self.left:
                self.where = place
                self.strike(frame)
            self.left -= 1

    def strike(self, frame: FrameType) -> None:
        sys.settrace(None)
        raise self.error("trapped")

    def run(self, call: Callable[[], object]) -> None:
        """Run the call with the trap set. Raises the errors of the call."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)

    def breaks(self, call: Callable[[], object]) -> bool:
        """Whether the trap's error comes out of the call. It is not kept: its frames would keep objects alive."""
        try:
            self.run(call)
        except self.error:
            return True
        return False


class CallTrap(Trap):
    """A trap that strikes as soon as a call has returned and before its result is kept, as a signal does."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not self.watched(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        returned = False

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal returned
            if event == "opcode":
                if returned:
                    self.come(frame)
                returned = _calls(frame.f_code.co_code[frame.f_lasti])
            elif event == "exception":
                returned = False
            return step

        return step


@cache
def _calls(opcode: int) -> bool:
    name = dis.opname[opcode]
    return name.startswith("CALL") and "INTRINSIC" not in name
