"""The file of a Unix socket: made with its mode, and one that nobody listens on any more removed."""

from __future__ import annotations

import errno
import os
import socket
import stat


def bind(path: str, mode: int) -> socket.socket:
    """A socket bound to a path, its file with that mode, and never with more.

    What an earlier process left there is removed; raises OSError(EADDRINUSE) where somebody listens, and where the
    path is something else than a socket.
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
        os.fchmod(listening.fileno(), mode)  # the file takes it over
        listening.bind(path)
        os.chmod(path, mode)  # what the umask took of it
    except OSError as error:
        listening.close()
        raise OSError(error.errno, error.strerror or str(error), path) from error
    return listening


def remove(path: str) -> None:
    """Remove the file of a socket that is not listened on any more."""
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
