"""Remains: threads, files and sockets of a process, as far as they are there for a store."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

LEFT_S: Final = 5.0  # threads and connections that end by themselves have so long
LOOK_S: Final = 0.01


def open_files(pid: int) -> list[str]:
    """Open files and sockets of a process. Raises OSError if it is gone."""
    places = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            places.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return places


def held_here(root: Path) -> list[str]:
    """Threads of this process besides the main one, its sockets, and its open files of a store."""
    main = threading.main_thread()
    threads = [f"{each.name} {each.ident}" for each in threading.enumerate() if each is not main]
    kinds = "socket:", f"{root}/"
    return [*threads, *(each for each in open_files(os.getpid()) if each.startswith(kinds))]


def left_behind(before: Collection[str] = (), *, root: Path) -> list[str]:
    """Those of `held_here` that were not there `before`, soon after this process disconnected."""
    patience = time.monotonic() + LEFT_S
    while found := [each for each in held_here(root) if each not in before]:
        if time.monotonic() > patience:
            break
        time.sleep(LOOK_S)
    return found
