"""A server to work with: tidelog, and redis-server to see that it is not the program that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.clients.real import real_redis
from tests.server.conftest import Start


@pytest.fixture(params=["tidelog", "redis-server"])
def port(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Iterator[int]:
    """Where it listens."""
    if request.param == "tidelog":
        yield start().port
    else:
        with real_redis(tmp_path) as found:
            yield found
