"""Fixtures for what is tried through every face of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.client.faces.faces import FACES, METHODS, same_in_a_replay


@pytest.fixture(params=FACES, ids=lambda kind: kind.__name__)
def face(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A queue without jobs, with the options `FACE_OPTIONS` of the test's module, and those of the store,
    `STORE_OPTIONS`. The log gives its state.
    """
    with ExitStack() as stack:
        options = [getattr(request.module, name, {}) for name in ("FACE_OPTIONS", "STORE_OPTIONS")]
        made = request.param(stack, *options)
        yield made
        same_in_a_replay(made)


@pytest.fixture(params=METHODS, ids=lambda kind: kind.__name__)
def methods(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A queue without jobs, through objects, which a thread can block on."""
    with ExitStack() as stack:
        yield request.param(stack, {})
