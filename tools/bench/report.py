"""The report: a table for people, JSON for machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from tidelog.tools.bench.figure import Figure, show

VERDICT = {True: "[green]met[/]", False: "[red]not met[/]", None: ""}


def as_json(machine: dict[str, str], rows: list[Figure], missing: dict[str, str]) -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "rows": [row.as_json() for row in rows],
        "missing": missing,
    }


def show_table(
    console: Console, machine: dict[str, str], rows: list[Figure], missing: dict[str, str]
) -> None:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    console.print(f"{when}; " + "; ".join(f"{name}: {fact}" for name, fact in machine.items()))
    table = Table(show_lines=True)
    for title in ("figure", "measured", "baselines", "ratio", "target", ""):
        numeric = title in ("measured", "ratio")
        table.add_column(title, justify="right" if numeric else "left")
    for row in rows:
        baselines = "\n".join(f"{n} {show(v, row.unit)}" for n, v in row.baselines.items())
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        name = f"{row.name}\n[dim]{row.note}[/]" if row.note else row.name
        measured = show(row.measured, row.unit)
        table.add_row(name, measured, baselines, ratio, row.target_text, VERDICT[row.met])
    console.print(table)
    for name, reason in missing.items():
        console.print(f"[yellow]{name} was not measured, or not in full: {reason}[/]")
    judged = [row for row in rows if row.met is not None]
    console.print(f"{sum(bool(row.met) for row in judged)} of {len(judged)} targets met")
