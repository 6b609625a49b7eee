"""The servers of the oracle: two of them, one clock, started once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.oracle.server import Clock, OracleMissing, RedisServer, directory


class Oracle(NamedTuple):
    """`server` answers beside tidelog; `second` receives what tidelog exports."""

    server: RedisServer
    second: RedisServer
    clock: Clock


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    place = directory()
    started: list[RedisServer] = []
    try:
        clock = Clock(place)
        try:
            for name in ("one", "two"):
                started.append(RedisServer(place, clock, name))
        except OracleMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        yield Oracle(started[0], started[1], clock)
    finally:
        for server in started:
            server.close()
        shutil.rmtree(place)
