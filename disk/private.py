"""Private: reads a file that only its owner may read, such as one that says how a store is served.

Links are followed: a mounted secret is one. So no disk that guards a store's directory reads it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple


class Private(NamedTuple):
    """The content of a file, and who may read it.

    path    where the file is, behind all links
    uid     the user to whom it belongs
    mode    its permissions
    """

    path: Path
    data: bytes
    uid: int
    mode: int


def read(path: Path, nbytes_max: int) -> Private | None:
    """The first bytes of a plain file; None if there is no such name. Raises OSError, for a broken link too."""
    try:
        # A FIFO would otherwise wait for its other end.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        data = os.pread(fd, min(found.st_size, nbytes_max), 0)
        return Private(path.resolve(), data, found.st_uid, stat.S_IMODE(found.st_mode))
    finally:
        os.close(fd)


def user_of(path: Path) -> int | None:
    """The user to whom a file belongs; None if it is not there."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return None
