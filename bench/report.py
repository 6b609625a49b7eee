"""The report: a table for people, JSON for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figure import Figure, mean, show

VERDICT = {True: "[green]met[/]", False: "[red]not met[/]", None: ""}


def as_json(facts: dict[str, str], rows: list[Figure], missing: dict[str, str]) -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts,
        "rows": [row.as_json() for row in rows],
        "missing": missing,
    }


def show_report(
    console: Console,
    facts: dict[str, str],
    rows: list[Figure],
    missing: dict[str, str],
    *,
    compared: bool,
) -> None:
    """Print the machine, the table of the kind that fits, and what was not measured."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    console.print(f"{when}; " + "; ".join(f"{name}: {fact}" for name, fact in facts.items()))
    console.print(_versions(rows) if compared else _baselines(rows))
    for name, reason in missing.items():
        console.print(f"[yellow]{name} was not measured, or not in full: {reason}[/]")
    judged = [row for row in rows if row.met is not None]
    if compared and (gain := mean(rows)) is not None:
        console.print(f"geometric mean of the ratios: {gain:.3f}")
    elif not compared:
        console.print(f"{sum(bool(row.met) for row in judged)} of {len(judged)} targets met")


def _baselines(rows: list[Figure]) -> Table:
    """Each figure beside its baselines and its target."""
    table = _table("figure", "measured", "baselines", "ratio", "target", "")
    for row in rows:
        baselines = "\n".join(f"{n} {show(v, row.unit)}" for n, v in row.baselines.items())
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        measured = show(row.measured, row.unit)
        table.add_row(_named(row), measured, baselines, ratio, row.target_text, VERDICT[row.met])
    return table


def _versions(rows: list[Figure]) -> Table:
    """Each figure beside that of the other version. A ratio above 1: this one is better."""
    table = _table("figure", "this", "other", "ratio")
    for row in rows:
        other = "" if row.other is None else show(row.other, row.unit)
        ratio = "" if row.gain is None else f"{row.gain:.3f}"
        table.add_row(_named(row), show(row.measured, row.unit), other, ratio)
    return table


def _table(*titles: str) -> Table:
    table = Table(show_lines=True)
    for title in titles:
        right = title in ("measured", "this", "other", "ratio")
        table.add_column(title, justify="right" if right else "left")
    return table


def _named(row: Figure) -> str:
    return f"{row.name}\n[dim]{row.note}[/]" if row.note else row.name
