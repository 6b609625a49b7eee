"""Benches: processes of `tidelog crash` that are ended in the middle, and what they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.until import until

# The scratch directories lie where no other run of the bench is met.
PROGRAM = """
import sys
from pathlib import Path
from tidelog.testing import scratch
scratch.TMPFS = Path(sys.argv.pop(1))
from tidelog.__main__ import main
main()
"""


def begin(scratch: Path, *args: object, **env: str) -> subprocess.Popen[str]:
    """A process of `tidelog` whose scratch directories lie in an existing directory."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(scratch), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        cwd=scratch.parent,
    )


def below(pid: int) -> set[int]:
    """The processes that this one has begun, and those that they have."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for child in map(int, children.read_text().split()):
                found |= {child, *below(child)}
    return found


def have_ended(processes: set[int]) -> None:
    """Wait until these have ended."""
    until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes),
        "a process of the bench is left",
    )


def mounts_of(pid: int, place: Path) -> list[str]:
    """The mounts below a directory that a process sees."""
    text = Path(f"/proc/{pid}/mountinfo").read_text()
    return [line for line in text.splitlines() if str(place) in line]


def loops_of(place: Path) -> list[str]:
    """The files below a directory that a loop device of this machine has."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found.append(path.read_text().strip())
        except OSError:
            continue  # it was freed meanwhile
    return [each for each in found if str(place) in each]
