"""The servers of the bench listen on ports that no other test process is given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.ports import free_port

from tidelog.tools.bench.baselines import redis_server
from tidelog.tools.bench.contenders import our_server


@pytest.fixture(scope="session", autouse=True)
def ports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (our_server, redis_server):
            patch.setattr(module, "free_port", free_port)
        yield
