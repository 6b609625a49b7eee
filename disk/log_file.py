"""A file that lines are appended to, such as the server's log. It is no part of a store, and is never synced."""

from __future__ import annotations

import os
from typing import TextIO

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def open_log_file(path: str) -> TextIO:
    """Open it to append. A new one is for its user alone, whatever the umask; one that is there keeps its mode, which
    an operator or logrotate chose."""
    try:
        fd = os.open(path, _APPEND | os.O_EXCL, 0o600)
    except FileExistsError:
        fd = os.open(path, _APPEND, 0o600)  # a link that leads nowhere makes a new file
    else:
        os.fchmod(fd, 0o600)  # what the umask took of it
    return os.fdopen(fd, "a", encoding="utf-8")
