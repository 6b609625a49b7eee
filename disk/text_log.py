"""A text file that lines are appended to, such as the server's log. It is outside the store and is never synced."""

from __future__ import annotations

import os
from typing import TextIO

from tidelog.disk.readable import ERRORS

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def open_log_file(path: str) -> TextIO:
    """Open the file to append. A new file is 0600 whatever the umask. An existing one keeps its mode, which an operator
    or logrotate chose. Raises OSError."""
    try:
        fd = os.open(path, _APPEND | os.O_EXCL, 0o600)
    except FileExistsError:
        fd = os.open(path, _APPEND, 0o600)  # a dangling link creates its target
    else:
        os.fchmod(fd, 0o600)  # restores bits that the umask removed
    return os.fdopen(fd, "a", encoding="utf-8", errors=ERRORS)
