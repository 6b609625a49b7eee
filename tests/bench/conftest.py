"""Runs of the bench that are as small as can be, and whose servers listen on ports that no other test is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import servers
from bench.run import Run
from tests.server.ports import free_port


@pytest.fixture(scope="session", autouse=True)
def ports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers, "free_port", free_port)
        yield


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Of this version alone."""
    with Run(tmp_path, rounds=1, slice_s=0.002, quick=True) as one:
        yield one
