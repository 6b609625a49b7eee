"""Waiting for what another thread or process does, where nothing tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests import inside

PATIENCE_S = 30.0  # after which a test gives up: it only matters to one that fails


def until(true: Callable[[], object], what: str = "it never came true") -> None:
    """Return as soon as `true()` is; `what` is said if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{what} ({PATIENCE_S:g} s)"
        time.sleep(0.001)


def parked(db: Any, count: int = 1) -> None:
    """Until so many callers of a store are blocked."""
    until(lambda: len(inside.waiters(db)) == count, "they do not park")
