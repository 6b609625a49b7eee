"""A rule for every test of the queue: no thread, no process and no parked caller stays behind."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from tests.store.conftest import clock, db
from tests.until import PATIENCE_S, WaitRanOut

__all__ = ["clock", "db"]  # fixtures of the store


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """Threads that a test started, the queue's own among them, have ended soon after it."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    deadline = time.monotonic() + PATIENCE_S
    while left := [t for t in threading.enumerate() if t not in before and t.is_alive()]:
        if time.monotonic() >= deadline:
            raise WaitRanOut(f"left behind: {left}")
        left[0].join(0.05)


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Thousands of jobs fail on purpose here; their tracebacks are not for the terminal."""
    logger = logging.getLogger("tidelog.queue")
    before = logger.level
    if "caplog" not in request.fixturenames:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)
