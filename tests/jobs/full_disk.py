"""A simulated disk that is full for a while."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import tidelog
from tidelog.disk.simulated import SimulatedDisk

NEEDS_SPACE = {"create", "write", "fill", "rename", "mkdir"}  # not what is there already


class Room:
    """A disk that is full while `full`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.full = False
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if self.full and operation in NEEDS_SPACE:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def fill(self, db: tidelog.Store) -> None:
        """Full to the last byte of the segment that is already there."""
        self.full = True
        for size in (500, 50, 1):
            with pytest.raises(tidelog.OutOfSpace):
                while True:
                    db.set("x", b"x" * size)
