"""Links: whether an open file still has a name."""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.disk.interface import File


def is_unlinked(file: File) -> bool:
    """Whether the last name of the file was removed. Raises OSError on a disk without descriptors."""
    return os.fstat(file.fileno()).st_nlink == 0


def is_at(file: File, path: Path) -> bool:
    """Whether `path` is a name of the open file. Raises OSError, also on a disk without descriptors."""
    mine = os.fstat(file.fileno())
    try:
        return os.path.samestat(mine, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
