"""Lines: the lines of the program under test, among all that run."""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

_PACKAGES: Final = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
_NOT_USERS: Final = (
    "<",
    str(Path(__file__).parents[1]) + os.sep,
    *(os.path.join(each, name) for each in _PACKAGES for name in ("_pytest", "pytest", "pluggy")),
    *(
        os.path.join(sysconfig.get_path("stdlib"), name)
        for name in ("asyncio", "concurrent", "contextlib.py", "threading.py", "runpy.py", "selectors.py")
    ),
)  # fmt: skip


class Line(NamedTuple):
    """A line of the program under test."""

    path: str
    number: int

    def __str__(self) -> str:
        text = linecache.getline(self.path, self.number).strip()
        return f"{os.path.relpath(self.path)}:{self.number}: {text}"


def lines_of(frame: FrameType | None) -> Iterator[Line]:
    """The lines of a stack that are not of tidelog, Python or pytest, the innermost first."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_USERS):
            yield Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back


def line_of(frame: FrameType | None) -> Line | None:
    """The innermost line that is not of tidelog, Python or pytest."""
    return next(lines_of(frame), None)


def stacks(frame: FrameType | None) -> list[str]:
    """Where the program stands, in words: in this thread, in the tasks of its event loop, and in the other threads.

    frame   the innermost one of this thread
    """
    found = {"": [*lines_of(frame)]}
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no event loop runs in this thread
        tasks = set()
    for task in tasks:
        found[task.get_name()] = [*_lines_of_coroutine(task.get_coro())]
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.ident is not None and thread is not threading.current_thread():
            found[thread.name] = [*lines_of(frames.get(thread.ident))]
    return [
        f"{name}, {line}" if name else str(line)
        for name, lines in found.items()
        for line in lines
    ]  # fmt: skip


def _lines_of_coroutine(awaited: Any) -> Iterator[Line]:
    """The lines of a coroutine that waits, the innermost first."""
    inner = getattr(awaited, "cr_await", None)
    if inner is not None:
        yield from _lines_of_coroutine(inner)
    frame = getattr(awaited, "cr_frame", None)
    if frame is not None and not frame.f_code.co_filename.startswith(_NOT_USERS):
        yield Line(frame.f_code.co_filename, frame.f_lineno)
