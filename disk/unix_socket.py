"""Unix socket files: creates one with the right mode, and removes a stale one."""

from __future__ import annotations

import errno
import os
import socket
import stat


def bind(path: str, mode: int) -> socket.socket:
    """A socket bound to `path`. Its file has the mode `mode`, and never a wider one in between.

    A socket file without a listener is removed first. Raises OSError(EADDRINUSE) if a process listens on it, or if
    `path` is not a socket; OSError.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISSOCK(found.st_mode) or _answers(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # bind(2) takes the mode of the new file from the socket
        os.fchmod(listening.fileno(), mode)
        listening.bind(path)
        os.chmod(path, mode)  # restores bits that the umask removed
    except OSError as error:
        listening.close()
        raise OSError(error.errno, error.strerror or str(error), path) from error
    return listening


def remove(path: str) -> None:
    """Remove a socket's file once nothing listens on it. A missing file is ignored."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
