"""A row says met when, and only when, one of its bounds holds; and which of two versions is better."""

import pytest
from bench.figure import Bound, Figure, mean, show
from bench.race import Value


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


def test_a_row_is_that_of_one_contender() -> None:
    found = {"tidelog": Value(50, 40), "bare": Value(100)}
    row = Figure.of("x", "/s", found, Bound(0.4, "bare"), note="by hand")
    assert (row.measured, row.other, row.baselines) == (50, 40, {"bare": 100})
    assert Figure.of("x", "/s", found, measured="bare").baselines == {"tidelog": 50}


@pytest.mark.parametrize(
    ("unit", "this", "other", "gain"),
    [("/s", 50, 40, 1.25), ("MB/s", 40, 50, 0.8), ("ms", 40, 50, 1.25), ("ms/s", 50, 40, 0.8)],
)
def test_a_gain_is_above_one_if_this_version_is_better(
    unit: str, this: float, other: float, gain: float
) -> None:
    assert Figure("x", unit, this, other=other).gain == pytest.approx(gain)


def test_the_mean_is_that_of_rows_that_have_a_gain() -> None:
    rows = [Figure("x", "/s", 2, other=1), Figure("x", "/s", 1, other=2), Figure("x", "/s", 9)]
    assert mean(rows) == pytest.approx(1)
    assert mean(rows[2:]) is None
    assert mean([Figure("x", "B", -1, other=5)]) is None, "memory may shrink"


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
