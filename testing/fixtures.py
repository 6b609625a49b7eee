"""Fixtures for pytest. To use them, add this line to the top-level conftest.py of your tests:

    pytest_plugins = ["tidelog.testing.fixtures"]

This is the only module of tidelog that imports pytest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.store.faces.sync import Store
from tidelog.testing.clock import Clock
from tidelog.testing.stores import store


@pytest.fixture
def tidelog_clock() -> Clock:
    """A clock that stands at 2026-01-01 UTC until the test moves it."""
    return Clock()


@pytest.fixture
def tidelog_store(tidelog_clock: Clock) -> Iterator[Store]:
    """An empty store that uses `tidelog_clock`; removed after the test."""
    with store(tidelog_clock) as db:
        yield db
