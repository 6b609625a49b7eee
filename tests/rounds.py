"""Which rounds of a long test `make test` runs. `make test-slow` runs the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


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
