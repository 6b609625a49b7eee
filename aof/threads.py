"""Starts a thread, and reports a limit of the system as NoThread."""

from __future__ import annotations

import threading

from tidelog.aof.errors import NoThread


def start(thread: threading.Thread, purpose: str) -> None:
    """Start a thread. Raises NoThread if the system refuses one; nothing has changed."""
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(purpose, str(error)) from error
