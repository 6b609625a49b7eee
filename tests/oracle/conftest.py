"""The servers of the oracle: two of each release, one clock for both, started once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from tests.oracle import differences, differences_8_2
from tests.oracle.engine_side import Differences
from tests.oracle.server import (
    EIGHT,
    SEVEN,
    Clock,
    OracleMissing,
    RedisServer,
    Release,
    directory,
    eight_is_not_here,
)


class Oracle(NamedTuple):
    """`server` answers beside tidelog; `second` receives what tidelog exports. `owes` says what they answer."""

    server: RedisServer
    second: RedisServer
    clock: Clock
    release: Release
    owes: Differences


@contextmanager
def _running(release: Release, owes: Differences) -> Iterator[Oracle]:
    place = directory()
    started: list[RedisServer] = []
    try:
        clock = Clock(place)
        try:
            for name in ("one", "two"):
                started.append(RedisServer(place, clock, name, release))
        except OracleMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        yield Oracle(started[0], started[1], clock, release, owes)
    finally:
        for server in started:
            server.close()
        shutil.rmtree(place)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    with _running(SEVEN, differences) as running:
        yield running


@pytest.fixture(scope="session")
def oracle_8_2() -> Iterator[Oracle]:
    reason = eight_is_not_here()
    if reason is not None:
        pytest.skip(f"not run: {reason}")
    with _running(EIGHT, differences_8_2) as running:
        yield running
