"""Directory: tells the directory of a store from that of a snapshot, without the code that opens either."""

from __future__ import annotations

from pathlib import Path

from tidelog.aof import identity
from tidelog.disk.interface import Disk


def is_snapshot(disk: Disk, root: Path) -> bool:
    """Whether a directory is a snapshot and not a store."""
    if disk.exists(root / identity.NAME):
        return False
    from tidelog.snapshot import manifest  # imported here: a store does not need it

    return disk.exists(root / manifest.NAME)
