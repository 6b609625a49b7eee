"""A row says met when, and only when, one of its bounds holds."""

import pytest

from tidelog.tools.bench.figure import Bound, Figure, show


@pytest.mark.parametrize(
    ("measured", "target", "met"),
    [
        (100.0, (), None),
        (100.0, (Bound(99),), True),
        (100.0, (Bound(101),), False),
        (100.0, (Bound(101, most=True),), True),
        (100.0, (Bound(0.5, "bare"),), True),
        (100.0, (Bound(0.6, "bare"),), False),
        (100.0, (Bound(0.6, "bare"), Bound(90)), True),
        (100.0, (Bound(0.5, "absent"),), False),
        (250.0, (Bound(50, "bare", most=True, over=True),), True),
        (251.0, (Bound(50, "bare", most=True, over=True),), False),
    ],
)
def test_verdict(measured: float, target: tuple[Bound, ...], met: bool | None) -> None:
    assert Figure("x", "/s", measured, {"bare": 200.0}, target).met is met


def test_the_ratio_is_against_the_targets_baseline() -> None:
    row = Figure("x", "/s", 50, {"first": 10, "bare": 100}, (Bound(0.4, "bare"),))
    assert (row.against, row.ratio) == ("bare", 0.5)
    assert row.target_text == ">= 0.4 x bare"
    over = Figure("x", "ms", 50, {"bare": 10}, (Bound(50, "bare", most=True, over=True),))
    assert over.target_text == "<= bare + 50 ms"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (203_456, "/s", "203,000/s"),
        (1_834_567, "/s", "1,830,000/s"),
        (987, "/s", "987/s"),
        (3.4321, "us", "3.43 us"),
        (14.06, "B", "14.1 B"),
        (-4_590_000, "B", "-4,590,000 B"),
    ],
)
def test_figures_are_shown_with_three_digits(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text
