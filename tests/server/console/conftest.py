"""The fixture `site`: a server with a console and nothing but defaults."""

from __future__ import annotations

import pytest
from tests.server.conftest import Start
from tests.server.console.browsing import Site


@pytest.fixture
def site(start: Start) -> Site:
    return Site(start)
