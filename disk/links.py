"""Links: whether an open file still has a name."""

from __future__ import annotations

import os

from tidelog.disk.interface import File


def is_unlinked(file: File) -> bool:
    """Whether the last name of the file was removed. Raises OSError on a disk without descriptors."""
    return os.fstat(file.fileno()).st_nlink == 0
