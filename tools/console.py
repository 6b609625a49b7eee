"""What the tools show while they work and when they are done. Nothing here decides anything.

Results go to standard output, plain enough for a pipe. Progress goes to standard error, and only to a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tidelog.tools.text import columns

Advance = Callable[[int], None]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> None:
    """Print a table: drawn with rich on a terminal, in plain columns elsewhere.

    The columns named in `right` (separated by blanks) are set to the right.
    """
    if not sys.stdout.isatty():
        sys.stdout.write(columns(head, rows, right))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table()
    for name in head:
        drawn.add_column(name, justify="right" if name in right.split() else "left")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


@contextmanager
def progress(label: str, total: int, *, size: bool = False) -> Iterator[Advance]:
    """A progress bar over `total` steps (bytes, with `size`); the block calls what it is given with each advance."""
    if not sys.stderr.isatty():
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
