"""Scratch: a directory in memory for stores that lose power, and the removal of those that killed runs left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

TMPFS: Final = Path("/dev/shm")
PREFIX: Final = "tidelog-crash-"
LOCK: Final = "LOCK"


@contextmanager
def scratch(tell: Callable[[str], object], parent: Path | None = None) -> Iterator[Path]:
    """A new directory in `parent`, which is tmpfs where there is one. Removed at the end, with those of killed runs."""
    disk = RealDisk()
    if parent is None:
        tmpfs = disk.exists(TMPFS) and disk.writable(TMPFS)
        parent = TMPFS if tmpfs else Path(tempfile.gettempdir())
    _clear(disk, parent, tell)
    place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    lock = disk.lock(place / LOCK)
    assert lock is not None, "nobody else knows this directory"
    try:
        yield place
    finally:
        lock.close()
        recipe.remove_tree(disk, place)


def _clear(disk: RealDisk, parent: Path, tell: Callable[[str], object]) -> None:
    """Remove the directories of runs that no longer live. Those of other users stay."""
    for name in disk.listdir(parent):
        path = parent / name
        if not name.startswith(PREFIX) or not disk.writable(path) or not disk.exists(path / LOCK):
            continue
        lock = disk.hold(path / LOCK, shared=False)
        if lock is None:
            continue  # its run is alive
        try:
            tell(f"removed {path}, which a killed run left")
            recipe.remove_tree(disk, path)
        finally:
            lock.close()
