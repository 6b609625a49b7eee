"""Sections of a report: a table, and a chart of the same figures. Plain values; no Spark, no matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Cell = str | int | float | None


@dataclass(frozen=True)
class Series:
    """Values with a name. `None`: nothing to draw there."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A drawing of the figures.

    kind     "bars": a horizontal bar for each label, the series side by side; "stacked": one behind the other;
             "lines": a line for each series over the labels
    unit     of the values
    log      a logarithmic axis
    """

    kind: Literal["bars", "stacked", "lines"]
    labels: Sequence[str]
    series: Sequence[Series]
    unit: str
    log: bool = False


@dataclass(frozen=True)
class Section:
    """One analysis.

    note    what the figures mean, and what they leave out
    rows    in the order of the table; `more`: others were left out
    chart   None if there is nothing to draw
    """

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    chart: Chart | None
    more: bool = False
