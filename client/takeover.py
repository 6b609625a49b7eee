"""Takeover: `tidelog serve` gets the store from an owner that clients started (server/handover.py)."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Final

from tidelog.aof.layout import SHARED
from tidelog.aof.lock import NAME as LOCK
from tidelog.aof.lock import holder
from tidelog.client.address import parse
from tidelog.client.starting import is_owner
from tidelog.disk import unix_socket
from tidelog.disk.real import RealDisk
from tidelog.resp.commands import encoded

ASK_S: Final = 5.0  # for which the owner may take to answer
TAKE_S: Final = 30.0  # for which it may take to end
PATIENCE_S: Final = 0.2  # for the lock, between two looks whether another owner has begun
LOOK_S: Final = 0.05  # between two attempts, of which one may meet an owner that begins or ends
_ANSWER_BYTES_MAX: Final = 1000


def ask(root: Path) -> socket.socket | None:
    """Ask the owner of the store to hand over. Returns the listening socket of the store's directory.

    None if it listens nowhere yet, or has ended. An owner of an earlier version, which does not know this, is ended by
    SIGTERM; None then, too.
    """
    try:
        link = parse(root).dial(SHARED, ASK_S)
    except OSError:
        return None
    with link:
        try:
            link.sendall(encoded((b"TIDELOG", b"HANDOVER")))
            answer, passed = unix_socket.receive_passed(link, _ANSWER_BYTES_MAX)
        except OSError:
            return None
    if passed is None and answer.startswith(b"-"):
        _terminate(root)
    return passed


def place_of(root: Path) -> tuple[int, int] | None:
    """Which socket the name in the store's directory leads to; None if it is not there."""
    try:
        found = os.lstat(root / SHARED)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _terminate(root: Path) -> None:
    pid = holder(RealDisk(), root / LOCK)
    if pid is not None and is_owner(root):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has just ended
