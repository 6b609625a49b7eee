"""Starting a thread, where the system may give none."""

from __future__ import annotations

import threading

from tidelog.aof.errors import NoThread


def start(thread: threading.Thread, purpose: str) -> None:
    """Start a thread. Raises NoThread at a limit of the system: nothing has changed."""
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(purpose, str(error)) from error
