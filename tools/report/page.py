"""The page of a report: one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from tidelog.tools.report.charts import svg
from tidelog.tools.report.section import Cell, Section

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2227; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid #d5dade; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1.5rem; } dt { color: #5b6770; } dd { margin: 0; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #e6eaed; white-space: nowrap; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; } .note { color: #5b6770; }
"""


def page(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The whole page. `facts` are listed under the title."""
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in facts.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<dl>\n{listed}</dl>\n"
        + "".join(map(_section, sections))
        + "</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>\n"]
    parts.append(f'<p class="note">{escape(section.note)}</p>\n')
    if section.chart is not None:
        caption = f"<figcaption>{escape(section.title)}, {escape(section.chart.unit)}</figcaption>"
        parts.append(f"<figure>\n{svg(section.chart, section.title)}{caption}\n</figure>\n")
    if section.rows:
        parts.append(_table(section))
    else:
        parts.append("<p>None.</p>\n")
    if section.more:
        parts.append('<p class="note">The table has the first rows only.</p>\n')
    return "".join([*parts, "</section>\n"])


def _table(section: Section) -> str:
    right = [
        any(isinstance(row[at], (int, float)) for row in section.rows)
        for at in range(len(section.head))
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        marked = (
            f'<{tag} class="n">{escape(cell)}</{tag}>'
            if to_right
            else f"<{tag}>{escape(cell)}</{tag}>"
            for cell, to_right in zip(cells, right)
        )
        return f"<tr>{''.join(marked)}</tr>\n"

    rows = "".join(line([cell_text(cell) for cell in row], "td") for row in section.rows)
    head = line(section.head, "th")
    return f'<div class="table"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody></table></div>\n'


def cell_text(cell: Cell) -> str:
    """A cell as text: numbers with commas, shares to four digits, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return cell if isinstance(cell, str) else f"{cell:,}"
