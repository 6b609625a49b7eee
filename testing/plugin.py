"""A plugin of pytest, loaded wherever tidelog is installed: a store, a clock, and crashes at every operation.

    def test_no_order_is_lost(tidelog_crash):
        def life(db, told): ...     # recorded once
        def after(db, told): ...    # run in each state that a crash may leave
        tidelog_crash(life, after)

Nothing of tidelog is imported before a test asks for a fixture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidelog.api.sync import Store
    from tidelog.testing.clock import Clock
    from tidelog.testing.crashes import Crashes

SEED = 0
STATES = 200
SECONDS = 60.0
# Of a report: a line for the summary. A worker of pytest-xdist sends it with the report.
PROPERTY = "tidelog_crash"


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
    group.addoption(
        "--crash-keep",
        type=Path,
        help="Keep failures of tidelog_crash in this directory, one for each test; by default in the cache of pytest.",
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say of which tests not every crash point was tried, and what a killed run had left."""
    found = [
        f"{report.nodeid}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if found:
        terminalreporter.section("tidelog_crash", sep="-")
        for line in found:
            terminalreporter.line(line)


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

    def tell(text: str) -> None:
        print(text)
        request.node.user_properties.append((PROPERTY, text))

    return Crashes(
        option("--crash-seed", SEED),
        option("--crash-states", STATES),
        option("--crash-timeout", SECONDS),
        _keep(request),
        tell,
    )


def _keep(request: pytest.FixtureRequest) -> Path | None:
    """The directory for a failure of this test; None if pytest has no cache and the user names no directory."""
    keep = request.config.getoption("--crash-keep", None)
    if keep is None:
        cache = getattr(request.config, "cache", None)
        if cache is None:
            return None
        keep = cache.mkdir("tidelog-crash")
    return Path(keep) / re.sub(r"[^\w.-]+", "-", request.node.nodeid).strip("-")
