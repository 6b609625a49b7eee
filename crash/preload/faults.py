"""Faults: what the preloaded library faults.c is told, and the calls that it counted.

faults.c says what each mode does and what it leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.crash.preload.library import PRELOAD

LMDB_DATA: Final = ("data.mdb",)


class Mode(Enum):
    """The fault at the n-th call."""

    BEFORE = "before"  # killed; the call is not made
    AFTER = "after"  # killed; the call is made
    TORN = "torn"  # killed; the first pages of the write are made, about half
    POWER = "power"  # killed; of what was not synced some is left, as the seed says
    ERROR = "error"  # the call fails, and the process lives on


class Call(NamedTuple):
    """One call that was counted. Offset and length are 0 where the operation has none."""

    operation: str
    offset: int
    length: int
    path: str


def settings(
    library: Path,
    report: Path,
    nth: int,
    mode: Mode,
    *,
    seed: int = 0,
    error: int = 0,
    paths: Sequence[str] = LMDB_DATA,
) -> dict[str, str]:
    """The environment of a process with a fault at its n-th call (0: none).

    report   an existing file, to which the calls are appended
    seed     of Mode.POWER
    error    errno of Mode.ERROR
    paths    ends of the paths that are watched
    """
    return {
        PRELOAD: str(library),
        "FAULT_NTH": str(nth),
        "FAULT_MODE": mode.value,
        "FAULT_SEED": str(seed),
        "FAULT_ERRNO": str(error),
        "FAULT_PATHS": ":".join(paths),
        "FAULT_REPORT": str(report),
    }


def calls_in(report: bytes) -> list[Call]:
    """The calls of a report, in order."""
    return [_call(line) for line in report.decode(errors="surrogateescape").splitlines()]


def _call(line: str) -> Call:
    operation, offset, length, path = line.split(" ", 3)
    return Call(operation, int(offset), int(length), path)
