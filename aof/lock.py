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
from tidelog.disk.process import words_of

NAME: Final = "LOCK"
OWNER: Final = "tidelog.client.owner"  # the module that a client starts to serve a store
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


def _came(pid: int | None) -> str:
    """How a process came to have a store open, as far as its command line tells: OWNER, SERVE or nothing."""
    words = [] if pid is None or pid == os.getpid() else words_of(pid)
    if OWNER in words:
        return StoreLocked.OWNER
    return (
        StoreLocked.SERVE if "serve" in words and any("tidelog" in word for word in words) else ""
    )


def acquire(disk: Disk, root: Path, pid: int) -> File:
    """Take the lock of the store in `root`. It is held until the returned file is unlocked, or closed in every
    process that inherited it.

    Raises StoreLocked with the holder's pid, or OSError (for example on a read-only file system).
    """
    path = root / NAME
    file = disk.lock(path)
    if file is None:
        other = holder(disk, path)
        here = other is None or _runs_here(other)
        raise StoreLocked(path, other, here=here, came=_came(other) if here else "")
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
