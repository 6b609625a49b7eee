"""A plugin of pytest, loaded wherever tidelog is installed: a store, a clock, and crashes at every operation.

    def test_no_order_is_lost(tidelog_crash):
        def life(db, told): ...     # recorded once
        def after(db, told): ...    # run in each state that a crash may leave
        tidelog_crash(life, after)

Nothing of tidelog is imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog.store.faces.sync import Store
    from tidelog.testing.clock import Clock
    from tidelog.testing.crashes import Crashes

SEED = 0
STATES = 200
SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tidelog")
    group.addoption(
        "--crash-seed",
        type=int,
        default=SEED,
        help=f"Seed of the states that tidelog_crash tries, {SEED} by default.",
    )
    group.addoption(
        "--crash-states",
        type=_positive,
        default=STATES,
        help=f"How many states each tidelog_crash tries at most, {STATES} by default.",
    )
    group.addoption(
        "--crash-timeout",
        type=_seconds,
        default=SECONDS,
        help=f"Seconds for each run of a program or its check under tidelog_crash, {SECONDS:g} by default.",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


@pytest.fixture
def tidelog_clock() -> Clock:
    """A clock that stands at 2026-01-01 UTC until the test moves it."""
    from tidelog.testing.clock import Clock  # here: pytest loads this module in every run

    return Clock()


@pytest.fixture
def tidelog_store(tidelog_clock: Clock) -> Iterator[Store]:
    """An empty store that uses `tidelog_clock`; removed after the test."""
    from tidelog.testing.stores import store  # here: pytest loads this module in every run

    with store(tidelog_clock) as db:
        yield db


@pytest.fixture
def tidelog_crash(request: pytest.FixtureRequest) -> Crashes:
    """Crash a program at every operation of its store: see `tidelog.testing.crashes.Crashes`."""
    from tidelog.testing.crashes import Crashes  # here: pytest loads this module in every run

    option = request.config.getoption
    return Crashes(
        option("--crash-seed", SEED),
        option("--crash-states", STATES),
        option("--crash-timeout", SECONDS),
    )
