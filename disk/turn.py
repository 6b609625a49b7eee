"""Turn: one at a time, of all threads and processes, does something for a directory.

It is a flock of the directory itself, so it ends with its process, and leaves no file. It saves work and decides
nothing: a caller that has waited for too long goes on without it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Turn:
    """A turn, until it is closed."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def close(self) -> None:
        """End the turn. May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child of a fork may have the descriptor as well
            os.close(fd)


def take_turn(directory: Path) -> Turn | None:
    """The turn of a directory; None if somebody has it. One that cannot be locked has as many as are asked for."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return Turn(None)  # it is missing, or closed to this user
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system without flock
        os.close(fd)
        return Turn(None)
    return Turn(fd)
