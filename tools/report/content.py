"""The content of a report: sections of what the analyses give, in Spark (over_spark.py) or here (plain.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from tidelog.spark.jobs.terms import STATES
from tidelog.tools.report.rows import Queue, Row, Rows
from tidelog.tools.report.section import Cell, Chart, Section, Series
from tidelog.tools.text import argument, place_text, time_text

CHART_ROWS: Final = 12


class Analyses(Protocol):
    """The subject of a report, and the results of the analyses: rows with the columns that spark/jobs describes.

    snapshots    the paths of all snapshots, oldest first, with the time of the last write in each (unix ms)
    path         the one that most sections show
    has_events   whether the log's events are known
    top          rows at most
    """

    snapshots: Sequence[tuple[str, int]]
    path: str
    has_events: bool

    def hot_streams(self, top: int) -> Rows: ...

    def hot_fields(self, top: int) -> Rows: ...

    def latency(self, top: int) -> Rows:
        """Of all deliveries if the events are known, or else of pending entries; the consumer with the most first."""

    def lag(self) -> Rows:
        """In all snapshots, the oldest first."""

    def poison_by_group(self, least: int) -> Rows: ...

    def poison(self, least: int, top: int) -> Rows: ...

    def jobs(self, asked: Queue) -> Rows:
        """For each state: state, jobs, deliveries (the most), errors, oldest, waited_ms_p50 ..., worked_ms_p50 ..."""


def plan(
    source: Analyses, *, queues: Sequence[Queue], deliveries: int, top: int
) -> list[Callable[[], Section]]:
    """The sections, each as a function that runs its queries.

    queues       those to show
    deliveries   from this number on a message counts as poison
    top          rows of a table
    """
    return [
        lambda: streams(source.hot_streams(top + 1), top),
        lambda: fields(source.hot_fields(top + 1), top),
        lambda: (delivery_latency if source.has_events else pending_latency)(
            source.latency(top + 1), top
        ),
        lambda: lags(source, top),
        lambda: poisoned(source, deliveries, top),
        *(partial(jobs, source, each) for each in queues),
    ]


def streams(hottest: Rows, top: int) -> Section:
    """The section of `hot_streams`."""
    rows, more = hottest[:top], len(hottest) > top
    head = ("stream", "entries", "fields", "bytes", "share")
    table = [(_key(row), *(row[name] for name in head[1:])) for row in rows]
    chart = _bars([str(row[0]) for row in table], {"bytes": [row[3] for row in table]}, "bytes")
    note = "Bytes of the names and values of all fields, without what storing them adds or saves."
    return Section("Hottest streams", note, head, table, chart, more)


def fields(hottest: Rows, top: int) -> Section:
    """The section of `hot_fields`."""
    rows, more = hottest[:top], len(hottest) > top
    head = ("stream", "field", "times", "bytes", "longest", "share")
    table = [(_key(row), _shown(row["name"]), *(row[name] for name in head[2:])) for row in rows]
    labels = [f"{row[0]} {row[1]}" for row in table]
    chart = _bars(labels, {"bytes": [row[3] for row in table]}, "bytes")
    note = "The same for each name of a field. `longest` is the longest value in bytes."
    return Section("Hottest fields", note, head, table, chart, more)


def pending_latency(found: Rows, top: int) -> Section:
    """The section of `latency.pending_latency`."""
    counts = {
        "pending": "pending",
        "redelivered": "redelivered",
        "deliveries_max": "most deliveries",
    }
    note = (
        "From the snapshot: entries that are pending. The times are from adding to delivery, of entries that were "
        "delivered once. A report with the log's events has all deliveries."
    )
    return _latency(found, counts, (), note, top)


def delivery_latency(found: Rows, top: int) -> Section:
    """The section of `latency.delivery_latency`."""
    counts = {name: name for name in ("deliveries", "redeliveries", "messages", "acknowledged")}
    note = (
        "From the log's events. The times are from adding to the first delivery; `handled` is from a delivery to its "
        "acknowledgement."
    )
    return _latency(found, counts, ("p50", "p99"), note, top)


def _latency(
    found: Rows, counts: Mapping[str, str], handled: Sequence[str], note: str, top: int
) -> Section:
    """A section of latencies, by consumer. `counts` maps columns to headings."""
    named = ("p50", "p95", "p99", "max")
    rows, more = found[:top], len(found) > top
    times = [*_ms(named), *(f"handled {name}" for name in _ms(handled))]
    head = ("group", "consumer", *counts.values(), *times)
    table = [
        (
            *_consumer(row),
            *(row[name] for name in counts),
            *(row[f"latency_ms_{name}"] for name in named),
            *(row[f"handled_ms_{name}"] for name in handled),
        )
        for row in rows
    ]
    return Section("Delivery latency", note, head, table, _latency_chart(rows), more)


def lags(source: Analyses, top: int) -> Section:
    """The lag of each group, in all snapshots."""
    paths = [path for path, _ in source.snapshots]
    moments = dict(source.snapshots)
    by_group: dict[str, dict[str, Row]] = {}
    for row in source.lag():
        by_group.setdefault(f"{_key(row)} {_shown(row['group'])}", {})[row["snapshot"]] = row

    def now(found: dict[str, Row]) -> tuple[int, int]:
        last = found.get(source.path)
        return (-1, -1) if last is None else (last["lag"] or 0, last["pending"])

    order = sorted(by_group, key=lambda name: (*(-each for each in now(by_group[name])), name))
    head = ("group", "snapshot", "last write", "lag", "pending", "lag change", "read", "added")
    table: list[tuple[Cell, ...]] = []
    for name in order[:top]:
        last = by_group[name][max(by_group[name], key=lambda path: paths.index(path))]
        counts = ("lag", "pending", "lag_change", "read", "added")
        moment = time_text(moments[last["snapshot"]])
        table.append((name, last["snapshot_lsn"], moment, *(last[each] for each in counts)))
    shown = order[:7]
    lines = [
        Series(
            name,
            [None if (at := by_group[name].get(path)) is None else at["lag"] for path in paths],
        )
        for name in shown
    ]
    labels = [time_text(ms)[:16].replace("T", " ") for _, ms in source.snapshots]
    chart = Chart("lines", labels, lines, "entries not yet delivered") if lines else None
    note = (
        f"Over {len(paths)} snapshots. The table has each group's last one. Lag: entries not yet delivered, empty if "
        "unknown. Read, added: since the snapshot before."
    )
    return Section("Lag of groups", note, head, table, chart, len(order) > top)


def poisoned(source: Analyses, deliveries: int, top: int) -> Section:
    """The messages that were delivered too often."""
    by_group = source.poison_by_group(deliveries)
    total = sum(row["messages"] for row in by_group)
    rows = source.poison(deliveries, top) if total else []
    head = ("group", "consumer", "ID", "deliveries", "added", "delivered", "entry")
    table = [
        (
            *_consumer(row),
            *(row["id"], row["delivery_count"], _moment(row["added_at"])),
            *(_moment(row["delivered_at"]), "exists" if row["exists"] else "deleted"),
        )
        for row in rows
    ]
    labels = [f"{_key(row)} {_shown(row['group'])}" for row in by_group]
    counts = {"messages": [row["messages"] for row in by_group]}
    note = (
        f"Pending messages with at least {deliveries} deliveries: {total:,}, "
        f"of which {sum(row['deleted'] for row in by_group):,} have no entry any more."
    )
    chart = _bars(labels, counts, "messages")
    return Section("Poison messages", note, head, table, chart, total > len(table))


def jobs(source: Analyses, asked: Queue) -> Section:
    """The jobs of a queue by state."""
    found = {row["state"]: row for row in source.jobs(asked)}
    head = ["state", "jobs", "most deliveries", "with an error", "oldest"]
    head += ["waited p50 (ms)", "waited max (ms)", "worked p50 (ms)", "worked max (ms)"]
    table: list[tuple[Cell, ...]] = []
    for state in STATES:
        row = found.get(state)
        if row is not None:
            times = (
                row[f"{name}_ms_{of}"] for name in ("waited", "worked") for of in ("p50", "max")
            )
            table.append(
                (
                    state,
                    row["jobs"],
                    row["deliveries"],
                    row["errors"],
                    _moment(row["oldest"]),
                    *times,
                )
            )
    series = [Series(str(row[0]), [row[1] if isinstance(row[1], int) else 0]) for row in table]
    name = argument(asked.name.encode())
    where = f" in database {asked.db}" if asked.db else ""
    chart = Chart("stacked", [name], series, "jobs") if series else None
    note = f"Group {argument(asked.group.encode())}{where}, as of the snapshot's last write."
    return Section(f"Queue {name}", note, head, table, chart)


def _bars(labels: Sequence[str], series: Mapping[str, Sequence[Any]], unit: str) -> Chart | None:
    if not labels:
        return None
    drawn = [Series(name, values[:CHART_ROWS]) for name, values in series.items()]
    return Chart("bars", labels[:CHART_ROWS], drawn, unit)


def _latency_chart(rows: Rows) -> Chart | None:
    timed = [row for row in rows if row["latency_ms_max"] is not None][:CHART_ROWS]
    if not timed:
        return None
    labels = [" ".join(_consumer(row)) for row in timed]
    series = [
        Series(name, [row[f"latency_ms_{name}"] for row in timed]) for name in ("p50", "p95", "p99")
    ]
    return Chart("bars", labels, series, "milliseconds", log=True)


def _ms(names: Sequence[str]) -> list[str]:
    return [f"{name} (ms)" for name in names]


def _key(row: Row) -> str:
    """The stream of a row; its database is shown unless it is 0."""
    return place_text(row["db"], bytes(row["stream"]))


def _consumer(row: Row) -> tuple[str, str]:
    name = "(given back)" if row["consumer"] is None else _shown(row["consumer"])
    return f"{_key(row)} {_shown(row['group'])}", name


def _shown(raw: bytes | bytearray) -> str:
    return argument(bytes(raw))


def _moment(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms)
