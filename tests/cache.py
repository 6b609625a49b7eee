"""Where tests keep what they install once, outside of the repository."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache() -> Path:
    """The directory that `TIDELOG_TEST_CACHE` names, or tidelog-tests of the user's cache."""
    named = os.environ.get("TIDELOG_TEST_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(user) / "tidelog-tests"


@contextmanager
def place_of(name: str) -> Iterator[tuple[Path, bool]]:
    """(directory, whether something is to be installed there). If the block ends without an error, it was.

    Several test processes may ask at once.
    """
    place = cache() / name
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = place / "complete"
        yield place, not complete.exists()
        complete.touch()
