"""Waiting for what another thread or process does, where nothing tells."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tests import inside

import tidelog

T = TypeVar("T")

# Seconds after which a test gives up: they only matter to one that fails. Many tests fail for a mutant, which is why
# the gate has less patience.
PATIENCE_S = float(os.environ.get("TEST_PATIENCE_S", "60"))


class WaitRanOut(AssertionError):
    """A wait took longer than PATIENCE_S. A busy machine may explain that, as it never explains a wrong value."""


def until(true: Callable[[], object], what: str = "it never came true") -> None:
    """Return as soon as `true()` is. Raises WaitRanOut, which says `what`, if that takes too long."""
    begun = time.monotonic()
    while not true():
        waited = time.monotonic() - begun
        if waited >= PATIENCE_S:
            raise WaitRanOut(f"{what} ({PATIENCE_S:g} s)")
        # Asking may cost a process and its server a millisecond each: what takes long is not asked for all the time.
        time.sleep(min(max(0.001, waited / 10), 0.05))


def unlocked(open_: Callable[[], T]) -> T:
    """Open a store whose writer was dropped: a thread of that writer may have had the last reference."""
    found: list[T] = []

    def opens() -> bool:
        with suppress(tidelog.StoreLocked):
            found.append(open_())
        return bool(found)

    until(opens, "it stays locked")
    return found[0]


def parked(db: Any, count: int = 1) -> None:
    """Until `count` callers of a store are blocked."""
    until(lambda: len(inside.waiters(db)) == count, "they do not park")
