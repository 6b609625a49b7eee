"""Output of the tools: JSON, tables and progress bars. This module makes no decisions.

Results go to standard output, plain enough for a pipe. Progress goes to standard error, and only to a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools.text import columns

if TYPE_CHECKING:
    from rich.console import JustifyMethod

Advance = Callable[[int], None]


PROSE: Final = 12  # a column with several words has at least this many characters


def told(as_json: bool, facts: dict[str, Any], text: str) -> None:
    """Print facts as one JSON object, or else the text that says them."""
    click.echo(json.dumps(facts) if as_json else text)


def json_object(facts: dict[str, Any]) -> None:
    """Print one JSON object on a line."""
    click.echo(json.dumps(facts))


def objects(found: Iterable[dict[str, Any]]) -> None:
    """Print each as a JSON object on a line of its own."""
    for facts in found:
        json_object(facts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> None:
    """Print a table: drawn with rich on a terminal that is wide enough, in plain columns elsewhere.

    The columns named in `right` (separated by blanks) are set to the right. Nothing is cut off: long prose is wrapped
    in its cell, and an ID, a name or a time stays whole so that it can be copied.
    """
    if not sys.stdout.isatty():
        sys.stdout.write(columns(head, rows, right))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    drawn = Table()
    least = 1  # the table's least width: its frame plus its columns at their narrowest
    for name, *cells in zip(head, *rows, strict=True):
        width = max(map(cell_len, (name, *cells)))
        prose = any(" " in cell for cell in cells)
        least += 3 + (min(width, PROSE) if prose else width)
        justify: JustifyMethod = "right" if name in right.split() else "left"
        drawn.add_column(name, justify=justify, no_wrap=not prose, overflow="fold")
    if least > console.width:
        sys.stdout.write(columns(head, rows, right))
        return
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    console.print(drawn)


@contextmanager
def progress(
    label: str, total: int, *, size: bool = False, quiet: bool = False
) -> Iterator[Advance]:
    """A progress bar over `total` steps (bytes, with `size`). The block gets a function and calls it with each
    advance. `quiet`: nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    count = DownloadColumn() if size else MofNCompleteColumn()
    parts = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(done: int) -> None:
            bar.update(task, advance=done)

        yield advance
