"""Fixtures for pytest. Opt in with a line in the conftest.py at the top of the tests:

    pytest_plugins = ["tidelog.testing.fixtures"]

The one module of tidelog that imports pytest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.store.sync import Store
from tidelog.testing.clock import Clock
from tidelog.testing.stores import store


@pytest.fixture
def tidelog_clock() -> Clock:
    """A clock that stands at 2026-01-01 UTC until the test moves it."""
    return Clock()


@pytest.fixture
def tidelog_store(tidelog_clock: Clock) -> Iterator[Store]:
    """An empty store that goes by `tidelog_clock`; gone after the test."""
    with store(tidelog_clock) as db:
        yield db
