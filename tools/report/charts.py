"""Charts of a report as SVG elements, drawn by matplotlib. They have no link to anything outside."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidelog.tools.report.section import Chart

COLOURS: Final = ("#0b6fa4", "#e08a00", "#3a9d5d", "#b5485d", "#7a5ea8", "#6b7680", "#c9b200")
WIDTH_INCHES: Final = 8.0
LABEL_CHARS: Final = 42
SETTINGS: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # keep text as text, so it can be selected and searched
    "text.parse_math": False,  # a dollar sign in a key is a dollar sign
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def svg(chart: Chart, title: str) -> str:
    """Draw a chart as an `<svg>` element."""
    # The salt makes IDs inside the element differ from those of other charts on the page, and the same in each run.
    settings: Any = {**SETTINGS, "svg.hashsalt": title}
    with rc_context(settings):
        rows = len(chart.labels) * (len(chart.series) if chart.kind == "bars" else 1)
        height = 3.2 if chart.kind == "lines" else min(1.1 + 0.24 * rows, 12.0)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.add_subplot()
        if chart.kind == "lines":
            _lines(axes, chart)
        else:
            _bars(axes, chart)
        if len(chart.series) > 1:
            figure.legend(loc="outside upper right", ncols=min(len(chart.series), 4), frameon=False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Title": title})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _bars(axes: Axes, chart: Chart) -> None:
    stacked = chart.kind == "stacked"
    thick = 0.75 if stacked else 0.75 / len(chart.series)
    left = [0.0] * len(chart.labels)
    for number, series in enumerate(chart.series):
        values = [value or 0.0 for value in series.values]
        shift = 0.0 if stacked else (number - (len(chart.series) - 1) / 2) * thick
        at = [place + shift for place in range(len(values))]
        colour = COLOURS[number % len(COLOURS)]
        axes.barh(
            at, values, thick, left=left if stacked else None, color=colour, label=series.name
        )
        if stacked:
            left = [before + value for before, value in zip(left, values)]
    axes.set_yticks(range(len(chart.labels)), _shortened(chart.labels))
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)
    if chart.log:
        axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter(FuncFormatter(tick))  # the one of logarithms writes math
    axes.xaxis.grid(True, alpha=0.3)
    axes.set_axisbelow(True)


def _lines(axes: Axes, chart: Chart) -> None:
    places = range(len(chart.labels))
    for number, series in enumerate(chart.series):
        values = [float("nan") if value is None else value for value in series.values]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(places, values, marker="o", markersize=3, color=colour, label=series.name)
    every = max(1, len(chart.labels) // 8)
    shown = list(places)[::every]
    axes.set_xticks(shown, [chart.labels[place] for place in shown], rotation=20, ha="right")
    axes.set_ylabel(chart.unit)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(tick))
    axes.yaxis.grid(True, alpha=0.3)


def tick(value: float, place: int | None = None) -> str:
    """A number at an axis: 250, 2.5k, 1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _shortened(labels: Sequence[str]) -> list[str]:
    return [
        label if len(label) <= LABEL_CHARS else label[: LABEL_CHARS - 1] + "…" for label in labels
    ]
