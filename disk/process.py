"""Process: what the system tells of another process of this machine, and what a child of this one needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The memory that a process has, in bytes; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone, or not for this user to see."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "backslashreplace") for word in raw.split(b"\0")[:-1]]


def environment() -> dict[str, str]:
    """The environment in which a child finds this package, also where the program changed `sys.path`."""
    here = str(Path(__file__).absolute().parents[1])
    package = next((place for place in sys.path if place and _has_package(Path(place))), here)
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _has_package(place: Path) -> bool:
    return (place / "tidelog" / "__init__.py").exists()
