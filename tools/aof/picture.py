"""The picture of a log over time: panels of one time axis, drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tidelog.tools.aof.series import GroupName, Sample, Series, Span
from tidelog.tools.report.charts import COLOURS, SETTINGS, tick
from tidelog.tools.text import argument, place_text

PANEL_INCHES: Final = 1.55
WIDTH_INCHES: Final = 9.0
LABEL_CHARS: Final = 30
LIFE: Final = "life"
DOTS_PER_INCH: Final = 120


class Mark(NamedTuple):
    """A moment to mark: the beginning of a life, a checkpoint or a snapshot."""

    ms: int
    name: str


class Picture(NamedTuple):
    """All that is drawn."""

    series: Series
    groups: dict[GroupName, dict[int, Sample]]
    marks: list[Mark]
    title: str


def drawn(picture: Picture, form: str) -> bytes:
    """The picture in a format of matplotlib. The same figures give the same bytes as SVG."""
    settings: Any = {**SETTINGS, "svg.hashsalt": picture.title}
    with rc_context(settings):
        panels = 5 if picture.groups else 3
        size = (WIDTH_INCHES, 0.7 + PANEL_INCHES * panels)
        figure = Figure(figsize=size, layout="constrained")
        axes: list[Axes] = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
        _rates(axes[0], axes[1], picture.series)
        _exposed(axes[2], picture.series)
        if picture.groups:
            _groups(axes[3], picture, "lag", lambda sample: sample.lag)
            _groups(axes[4], picture, "pending", lambda sample: sample.pending)
            axes[3].legend(loc="upper left", frameon=False, fontsize=7)
        for each in axes:
            _marks(each, picture.marks)
            each.set_ylim(bottom=0)
            if each.get_ylim()[1] < 0.1:  # all zero
                each.set_ylim(top=1)
            each.yaxis.set_major_formatter(FuncFormatter(tick))
            each.yaxis.grid(True, alpha=0.3)
        axes[0].set_title(picture.title, loc="left", fontsize=9)
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_formatter(dates)
        axes[-1].set_xlabel("UTC" + _legend(picture.marks))
        out = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
        figure.savefig(out, format=form, dpi=DOTS_PER_INCH, metadata=metadata)
    return out.getvalue()


def _legend(marks: list[Mark]) -> str:
    kinds = {mark.name == LIFE for mark in marks}
    words = [
        *(["dotted: a life begins"] if True in kinds else []),
        *(["dashed: a checkpoint or snapshot"] if False in kinds else []),
    ]
    return f"  ({'; '.join(words)})" if words else ""


def _times(series: Series) -> list[datetime]:
    return [_time(number * series.width) for number in series.numbers()]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _rates(records: Axes, nbytes: Axes, series: Series) -> None:
    times, seconds = _times(series), series.width / 1000
    spans = [series.spans.get(number, Span(0, 0, 0, 0)) for number in series.numbers()]
    _line(records, times, [span.records / seconds for span in spans], 0, "records/s")
    _line(records, times, [span.entries / seconds for span in spans], 1, "entries added/s")
    records.set_ylabel("per second")
    records.legend(loc="upper left", frameon=False, fontsize=7)
    _line(nbytes, times, [span.nbytes / seconds for span in spans], 0, "bytes/s")
    nbytes.set_ylabel("bytes/s")


def _exposed(axes: Axes, series: Series) -> None:
    values: list[int] = []
    for number in series.numbers():
        span = series.spans.get(number)
        # Without a write, the records before are as exposed as they were.
        values.append((values[-1] if values else 0) if span is None else span.exposed)
    _line(axes, _times(series), values, 3, "exposed")
    axes.set_ylabel("not synced")


def _groups(axes: Axes, picture: Picture, name: str, value: Callable[[Sample], int | None]) -> None:
    """One line for each group. A span without a frame has the figures of the span before."""
    series = picture.series
    times = _times(series)
    for number, (group, found) in enumerate(picture.groups.items()):
        values: list[float] = []
        last: Sample | None = None
        for at in series.numbers():
            last = found.get(at, last)
            figure = None if last is None else value(last)
            values.append(float("nan") if figure is None else figure)
        _line(axes, times, values, number, _label(group))
    axes.set_ylabel(name)


def _line(
    axes: Axes, times: list[datetime], values: Sequence[float], number: int, label: str
) -> None:
    colour = COLOURS[number % len(COLOURS)]
    marker = "o" if len(times) == 1 else None
    axes.plot(times, values, color=colour, linewidth=1.2, label=label, marker=marker)  # type: ignore[arg-type]


def _label(group: GroupName) -> str:
    db, key, name = group
    text = f"{place_text(db, key)} {argument(name)}"
    return text if len(text) <= LABEL_CHARS else text[: LABEL_CHARS - 1] + "…"


def _marks(axes: Axes, marks: list[Mark]) -> None:
    for mark in marks:
        style = ":" if mark.name == LIFE else "--"
        axes.axvline(_time(mark.ms), color="#6b7680", linewidth=0.8, linestyle=style)  # type: ignore[arg-type]
