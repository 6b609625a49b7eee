"""Unix socket files: creates one with the right mode, removes a stale one, and finds the one of a store."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME_BYTES_MAX: Final = 107  # of a socket's path, without the final NUL
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


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
    return _bound(path, mode)


def bind_in(directory: Path, name: str, mode: int) -> socket.socket:
    """A socket bound to `name` in a directory whose lock the caller holds, so that a socket there is stale.

    The directory's path may be longer than a socket's name may be. Raises OSError; EEXIST if another kind of file has
    the name, which stays.
    """
    with _short(directory, name) as path:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            pass
        else:
            if not stat.S_ISSOCK(found.st_mode):
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(directory / name)
                )
            os.unlink(path)
        return _bound(path, mode)


def connect_in(directory: Path, name: str, seconds: float) -> socket.socket:
    """A connection to the socket `name` in a directory. Raises OSError."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(seconds)
        with _short(directory, name) as path:
            link.connect(path)
    except BaseException:
        link.close()
        raise
    return link


def peer_uid(link: socket.socket) -> int:
    """The user of the process at the other end, as of when it connected. Raises OSError."""
    raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def pass_on(link: int, data: bytes, listening: socket.socket) -> None:
    """Send a listening socket over the connection with the descriptor `link`, beside `data`. Raises OSError."""
    with socket.socket(fileno=os.dup(link)) as to:
        to.setblocking(True)
        socket.send_fds(to, [data], [listening.fileno()])


def receive_passed(link: socket.socket, nbytes_max: int) -> tuple[bytes, socket.socket | None]:
    """The next bytes of a connection, and the socket that came with them. Raises OSError."""
    data, passed, _, _ = socket.recv_fds(link, nbytes_max, 1)
    return data, socket.socket(fileno=passed[0]) if passed else None


@contextmanager
def _short(directory: Path, name: str) -> Iterator[str]:
    """A path of `name` that fits into a socket's name, through a descriptor of the directory if need be."""
    path = directory / name
    if len(os.fsencode(path)) <= NAME_BYTES_MAX:
        yield str(path)
        return
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def _bound(path: str, mode: int) -> socket.socket:
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
