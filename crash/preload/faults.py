"""Faults: what the preloaded library faults.c is told, and the calls that it counted.

faults.c says what each mode does and what it leaves out. A process can be started with such faults, or set them itself,
again and again (`Loaded`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.crash.preload.library import PRELOAD, NotLoaded

LMDB_DATA: Final = ("data.mdb",)
SYNCS: Final = ("fdatasync", "fsync", "msync")
WRITES: Final = ("pwrite", "pwritev", "write", "writev")
WRITING: Final = (*WRITES, "ftruncate", "fallocate", *SYNCS)
NAMING: Final = ("create", "rename", "unlink", "mkdir", "rmdir")
READING: Final = ("open", "pread", "mmap")


class Mode(Enum):
    """The fault at the n-th call."""

    BEFORE = "before"  # killed; the call is not made
    AFTER = "after"  # killed; the call is made
    TORN = "torn"  # killed; the first pages of the write are made, about half
    POWER = "power"  # killed; of what was not synced some is left, as the seed says
    ERROR = "error"  # the call fails, and the process lives on
    ONWARDS = "onwards"  # that call and each one that follows fail
    SHORT = "short"  # a write makes the first half, and says so
    LIES = "lies"  # a sync fails, and later ones succeed without what it gave up


class Call(NamedTuple):
    """One call that was counted. Offset and length are 0 where the operation has none."""

    operation: str
    offset: int
    length: int
    path: str


def settings(
    library: Path | None,
    report: Path,
    nth: int,
    mode: Mode,
    *,
    seed: int = 0,
    error: int = 0,
    paths: Sequence[str] = LMDB_DATA,
    calls: Sequence[str] = WRITING,
) -> dict[str, str]:
    """The environment of a process with a fault at its n-th call (0: none).

    library  the compiled faults.c; None for a process that has it
    report   an existing file, to which the calls are appended
    seed     of Mode.POWER
    error    errno of a call that fails
    paths    ends of the paths that are watched; one that ends in / is all below that directory
    calls    that count
    """
    return {
        **({} if library is None else {PRELOAD: str(library)}),
        "FAULT_NTH": str(nth),
        "FAULT_MODE": mode.value,
        "FAULT_SEED": str(seed),
        "FAULT_ERRNO": str(error),
        "FAULT_PATHS": ":".join(paths),
        "FAULT_CALLS": ":".join(calls),
        "FAULT_REPORT": str(report),
    }


def calls_in(report: bytes) -> list[Call]:
    """The calls of a report, in order."""
    return [_call(line) for line in report.decode(errors="surrogateescape").splitlines()]


def _call(line: str) -> Call:
    operation, offset, length, path = line.split(" ", 3)
    return Call(operation, int(offset), int(length), path)


class Loaded:
    """The library, which was preloaded into this process."""

    def __init__(self) -> None:
        """Raises NotLoaded."""
        self._library = ctypes.CDLL(None)
        if not hasattr(self._library, "tidelog_faults"):
            raise NotLoaded(
                "the system does not preload a library from the directory of the stores; on a mount with `noexec` it "
                "cannot"
            )

    def begin(self, told: dict[str, str]) -> None:
        """Begin to count, with such `settings`."""
        os.environ.update(told)
        self._library.tidelog_faults()

    def lose_power(self) -> None:
        """The files that were touched since `begin` become what a loss of power might leave, by the seed given there.

        Nobody may use them any more.
        """
        self._library.tidelog_faults_power()

    def end(self) -> None:
        """From here on no call fails."""
        self.begin({"FAULT_NTH": "0", "FAULT_PATHS": "", "FAULT_REPORT": ""})
