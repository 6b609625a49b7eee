"""Tasks of a store that this process opens, and of one that an owner process serves. Nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.client.owners import ended_owner
from tests.jobs.conftest import nothing_stays_behind, quiet

import tidelog

__all__ = ["nothing_stays_behind", "quiet"]

Make = Callable[..., tidelog.Tasks]


@pytest.fixture(params=["embedded", "shared"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes tasks of one store, each time; they are closed at the end."""
    root, shared = tmp_path / "s", request.param == "shared"
    with ExitStack() as stack:
        if shared:
            stack.enter_context(ended_owner(root))

        def made(**options: Any) -> tidelog.Tasks:
            found = tidelog.tasks(root, shared=shared, fsync="no", **options)
            stack.callback(found.close)
            return found

        yield made
