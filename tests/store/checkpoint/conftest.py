"""The steps of checkpoint_steps.py, taken once for all tests that put a fault into them."""

from __future__ import annotations

import pytest
from tests.store.checkpoint.power import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("steps"))
