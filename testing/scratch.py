"""Scratch: a directory in memory for stores that lose power, and the removal of those that killed runs left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tidelog.disk import recipe
from tidelog.disk.interface import File
from tidelog.disk.real import RealDisk

TMPFS: Final = Path("/dev/shm")
PREFIX: Final = "tidelog-crash-"
LOCK: Final = "LOCK"


class ScratchGone(OSError):
    """The directory of the bench was removed. The text says which."""


@contextmanager
def scratch(tell: Callable[[str], object], parent: Path | None = None) -> Iterator[Path]:
    """A new directory in `parent`, which is tmpfs where there is one. Removed at the end, with those of killed runs."""
    disk = RealDisk()
    if parent is None:
        tmpfs = disk.exists(TMPFS) and disk.writable(TMPFS)
        parent = TMPFS if tmpfs else Path(tempfile.gettempdir())
    _clear(disk, parent, tell)
    place, lock = _new(disk, parent)
    try:
        try:
            yield place
        except Exception as error:
            _check(disk, place, error)
            raise
        _check(disk, place)
    finally:
        lock.close()  # from here on another run may take it for a killed one's, and remove it, too
        with suppress(FileNotFoundError):
            recipe.remove_tree(disk, place)


def _new(disk: RealDisk, parent: Path) -> tuple[Path, File]:
    """A new directory, and its lock. Until it is locked, another run may take it for a killed one's and remove it."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = None
        with suppress(FileNotFoundError):
            lock = disk.lock(place / LOCK)
        if lock is not None and disk.exists(place / LOCK):
            return place, lock
        if lock is not None:
            lock.close()


def _check(disk: RealDisk, place: Path, error: Exception | None = None) -> None:
    """Raises ScratchGone if somebody removed the directory: whatever was found there means nothing."""
    if not disk.exists(place / LOCK):
        raise ScratchGone(f"{place} was removed while the bench worked in it") from error


def _clear(disk: RealDisk, parent: Path, tell: Callable[[str], object]) -> None:
    """Remove the directories of runs that no longer live. Those of other users stay."""
    for name in disk.listdir(parent):
        path = parent / name
        if not name.startswith(PREFIX) or not disk.writable(path) or not disk.exists(path / LOCK):
            continue
        lock = None
        with suppress(FileNotFoundError):
            lock = disk.hold(path / LOCK, shared=False)
        if lock is None:
            continue  # its run is alive, or has ended just now
        try:
            recipe.remove_tree(disk, path)
            tell(f"removed {path}, which a killed run left")
        except FileNotFoundError:
            pass  # that run has just ended, and removes the rest itself
        finally:
            lock.close()
