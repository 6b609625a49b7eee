"""LOCK: one writer at a time. Held with flock, never unlinked; its text is the holder's pid.

The kernel releases an flock when the last descriptor of it goes, however the process ends, so no lock
is ever stale. The pid is there to be read by people and by the error of a second writer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.aof.errors import StoreLocked
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File

NAME: Final = "LOCK"
TEXT_BYTES_MAX: Final = 64


def acquire(disk: Disk, root: Path, pid: int) -> File:
    """Hold the lock of the store in `root` until the returned file is unlocked, or closed by all who inherited it.

    Raises StoreLocked naming the holder's pid, or OSError (a read-only file system, say).
    """
    path = root / NAME
    file = disk.lock(path)
    if file is None:
        raise StoreLocked(path, holder(disk, path))
    try:
        text = b"%d\n" % pid
        file.write(0, text)  # over what is there: a full disk has no room for it otherwise
        file.truncate(len(text))
    except BaseException:
        file.close()
        raise
    return file


def holder(disk: Disk, path: Path) -> int | None:
    """The pid in a lock file; None if there is none."""
    text = recipe.read(disk, path, TEXT_BYTES_MAX).strip()
    return int(text) if text.isdigit() else None  # empty for a moment while a holder writes it
