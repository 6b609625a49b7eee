"""LOCK: allows one writer at a time, with flock. It is never unlinked; its text is the holder's pid.

The kernel releases an flock when its last descriptor is closed, however the process ends, so no lock
is ever stale. The pid is only information, for people and for the error that a second writer gets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tidelog.aof.errors import StoreLocked
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File

NAME: Final = "LOCK"
TEXT_BYTES_MAX: Final = 64


def _runs_here(pid: int) -> bool:
    """Whether there is such a process on this machine, as far as this process sees."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # of another user
    return True


def acquire(disk: Disk, root: Path, pid: int) -> File:
    """Take the lock of the store in `root`. It is held until the returned file is unlocked, or closed in every
    process that inherited it.

    Raises StoreLocked with the holder's pid, or OSError (for example on a read-only file system).
    """
    path = root / NAME
    file = disk.lock(path)
    if file is None:
        other = holder(disk, path)
        raise StoreLocked(path, other, here=other is None or _runs_here(other))
    try:
        text = b"%d\n" % pid
        # overwrites the old pid, which needs no new space, so it works on a full disk
        file.write(0, text)
        file.truncate(len(text))
    except BaseException:
        file.close()
        raise
    return file


def holder(disk: Disk, path: Path) -> int | None:
    """The pid in a lock file; None if it has none."""
    text = recipe.read(disk, path, TEXT_BYTES_MAX).strip()
    return int(text) if text.isdigit() else None  # a new file is empty until its holder writes
