"""Connections that are closed when the test ends. A test module imports both names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.wire import Client, connect

_open: list[Client] = []


def dial(port: int) -> Client:
    """A new connection to a port of this machine."""
    client = connect(port)
    _open.append(client)
    return client


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close them."""
    yield
    while _open:
        _open.pop().close()
