"""Comparing two checkouts: the sides are what they are said to be, and the figures say who is faster."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.tools.bench.compare import ROWS, Result, Workload, command, mean, slower, table

ROOT = Path(__file__).parents[3]
ROW = Workload("xadd", "XADD one", 1, 1, 1)


def result(before: list[float], after: list[float], counts: tuple[float, float] | None) -> Result:
    return Result(ROW, 1_000, before, after, counts)


ALONE = [row for row in ROWS if not row.name.startswith("served")]  # they need no other program


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ALONE[:2], id="some"),
        pytest.param(ALONE, marks=pytest.mark.soak, id="all"),
    ],
)
def test_a_checkout_beside_itself(tmp_path: Path, rows: list[Workload]) -> None:
    """Every row runs, and its instructions agree."""
    only = [word for row in rows for word in ("--only", row.name)]
    few = ["--slices", "1", "--slice-s", "0.001", "--instructions", "--dir", str(tmp_path)]
    done = CliRunner().invoke(command, [str(ROOT), str(ROOT), *few, *only])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line[:28].rstrip() for line in lines[3:-1]] == [row.about for row in rows]
    assert lines[-1].startswith("geometric mean") and 0.97 < float(lines[-1].split()[-1]) < 1.03
    assert not list(tmp_path.iterdir())


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path), str(ROOT), "--only", "xadd"])
    assert done.exit_code == 2 and "is not a checkout of tidelog" in done.output


def test_the_ratio_is_the_speed_of_the_second() -> None:
    twice = result([2.0, 2.2, 9.0], [1.0, 1.1, 1.2], (300, 200))
    assert twice.ratio == pytest.approx(2) and twice.instruction_ratio == 1.5
    (_, line, last) = table([twice])
    assert line.split()[-7:] == ["2200.000", "1100.000", "2.000", "2.000", "-", "7.500", "1.5000"]
    assert last.split() == ["geometric", "mean", "2.000", "1.5000"]
    assert mean([0.5, 2.0]) == pytest.approx(1)


def test_instructions_decide_where_they_were_counted() -> None:
    noisy = result([0.9], [1.0], (1000, 1001))
    assert slower([noisy, result([1.2], [1.0], None)]) == []
    assert slower([result([0.9], [1.0], (900, 1000)), result([1.2], [1.0], None)]) == ["XADD one"]
    assert slower([result([0.97], [1.0], None)]) == ["geometric mean"]
