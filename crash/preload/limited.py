"""Limited: runs a command of the user with a limit of time. None of its processes outlives it.

A Python program that hangs is asked for its stack first: faulthandler prints it when the process gets SIGABRT.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

STACK_S: Final = 5.0  # to print it
FRAMES: Final = 6  # that are shown
FRAME: Final = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


class Ended(NamedTuple):
    """An ended command: its exit code, negative for a signal, and the text that it printed."""

    code: int
    said: str


class Hangs(Exception):
    """The command did not end in time. The text says where a Python program stood, the innermost first."""


def run(
    words: Sequence[str],
    seconds: float,
    said: Path,
    env: Mapping[str, str] | None = None,
    output: int | None = None,
) -> Ended:
    """Run a command.

    said     a new file for what it prints; removed afterwards
    output   a descriptor for its standard output; without one, that goes into `said` too

    Raises Hangs, and OSError if it cannot be started.
    """
    disk = RealDisk()
    file = disk.create(said)
    try:
        process = subprocess.Popen(
            words,
            env={"PYTHONFAULTHANDLER": "1", **(os.environ if env is None else env)},
            stdin=subprocess.DEVNULL,
            stdout=file.fileno() if output is None else output,
            stderr=file.fileno(),
            start_new_session=True,  # Ctrl-C is for this process, which ends the command
        )
        try:
            ended = _ended(process, seconds)
            stack = "" if ended else _stack(process, said)
        finally:
            code = _end(process)
        if not ended:
            raise Hangs(stack)
        return Ended(code, _text(said))
    finally:
        file.close()
        disk.unlink(said)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for its end, and leave it to be waited for, so that its number stays its own."""
    # A Connection closes the descriptor, and `wait` looks at nothing but whether it is readable.
    with Connection(os.pidfd_open(process.pid), writable=False) as end:
        return bool(wait([end], seconds))


def _end(process: subprocess.Popen[bytes]) -> int:
    """End all that the process has started and left in its group, and itself. Returns its exit code."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _stack(process: subprocess.Popen[bytes], said: Path) -> str:
    before = len(_text(said))
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
    process.send_signal(signal.SIGABRT)
    _ended(process, STACK_S)
    frames = FRAME.findall(_text(said)[before:])
    return ", ".join(f"{Path(path).name}:{line} in {name}" for path, line, name in frames[:FRAMES])


def _text(path: Path) -> str:
    return recipe.read(RealDisk(), path).decode(errors="replace")
