"""Rounds of long tests: `make test` runs some of them, `make test-slow` the others. Random seeds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings


def some_and_all(some: object, all_: object) -> list[object]:
    """Two values of one parameter: how much `make test` tries, and how much the slow variant tries."""
    return [
        pytest.param(some, id="some"),
        pytest.param(all_, marks=pytest.mark.slow, id="all"),
    ]


def rest_slow(values: Iterable[object], first: int) -> list[object]:
    """The values of one parameter, of which all but the `first` few are slow."""
    return [
        value if number < first else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


def slow_and_soak(slow: object, soak: object) -> list[object]:
    """Two values of one parameter: how much `make test-slow` tries, and how much `make test-soak` tries."""
    return [
        pytest.param(slow, marks=pytest.mark.slow, id="slow"),
        pytest.param(soak, marks=pytest.mark.soak, id="soak"),
    ]


def more(test: Any, examples: int) -> Any:
    """A test of hypothesis again, with more examples: a slow test."""
    told = test.hypothesis
    again: Any = given(**told._given_kwargs)(told.inner_test)
    enough = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    again.pytestmark = [*getattr(test, "pytestmark", ()), pytest.mark.slow.mark]
    return enough(again)


def some_slow_and_soak(some: object, slow: object, soak: object) -> list[object]:
    """Three values of one parameter: how much each of the three runs tries."""
    return [pytest.param(some, id="some"), *slow_and_soak(slow, soak)]


def new_seeds(count: int) -> range:
    """Seeds from a random one on. The first is printed, so that a failed run can be repeated."""
    first = random.randrange(1 << 32)
    print("first seed", first)
    return range(first, first + count)
