"""`tidelog queue watch`: the queues of a store as they change, drawn in place on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

import click

from tidelog.jobs.rows import Failure
from tidelog.jobs.stats import WorkerStatus
from tidelog.tools import console
from tidelog.tools.names import queues
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.failures import HEAD as FAILURE_HEAD
from tidelog.tools.queue.failures import shown
from tidelog.tools.queue.looks import Look, as_object, cells, look, text, workers_of
from tidelog.tools.queue.store import found, group_option, opened
from tidelog.tools.queue.value import one_line, progress_text
from tidelog.tools.times import every_option, renamed
from tidelog.tools.top.words import QUEUE_HEAD

VERSION: Final = 1
FAILURES: Final = 5
HEAD: Final = (*QUEUE_HEAD, "CANCELLED", "PUT/S", "DONE/S")
WORKER_HEAD: Final = ("WORKER", "IN-FLIGHT", "HANGING", "PROGRESS")
PROGRESS: Final = 3  # of the jobs of a worker


class Beside(NamedTuple):
    """What is shown of one queue beside its figures: the latest failures, and the workers."""

    failures: list[Failure]
    workers: list[WorkerStatus]


Show = Callable[[Look, Beside], None]
# head, rows, columns that are set to the right
Drawn = tuple[tuple[str, ...], list[tuple[str, ...]], str]
_SLEEP: Callable[[float], None] = time.sleep  # tests put another in its place


@at_path_or_url(
    "tidelog queue watch orders-data",
    "tidelog queue watch orders-data mails --every 5",
    "tidelog queue watch redis://127.0.0.1:6379 --looks 2 --json | jq .done_per_second",
    json="Print one JSON object per queue and look.",
)
@click.argument("name", required=False, shell_complete=queues)
@group_option
@every_option
@renamed(
    "--looks",
    formerly=("--count",),
    type=click.IntRange(1),
    help="End after this number of looks.",
)
def command(
    path: PathOrUrl,
    name: str | None,
    group: str | None,
    every: float,
    looks: int | None,
    as_json: bool,
) -> None:
    if group is not None and name is None:
        raise click.UsageError("--group belongs to a NAME")
    with opened(path) as store, ExitStack() as stack:
        # A name that is not there is an error at once. Queues may come and go later.
        only = None if name is None else (name, found(store, path, name, group).group)
        show: Show = print_json if as_json else print_tables
        if not as_json and sys.stdout.isatty():
            show = stack.enter_context(_Screen())
        before: Look | None = None
        left = looks
        try:
            while left is None or left > 0:
                if before is not None:
                    _SLEEP(every)
                before = look(store, only, before)
                beside = Beside([], [])
                if only is not None and before.rows:
                    queue = store.queue(*only, codec="bytes")
                    beside = Beside(queue.failures(count=FAILURES), workers_of(queue))
                show(before, beside)
                left = None if left is None else left - 1
        except KeyboardInterrupt:
            pass  # the usual end


def print_json(found: Look, beside: Beside) -> None:
    console.objects({"v": VERSION, **as_object(row, found.at_ms)} for row in found.rows)
    sys.stdout.flush()


def print_tables(found: Look, beside: Beside) -> None:
    """For a pipe: the tables one below the other."""
    for head, rows, right in tables(found, beside):
        console.table(head, rows, right)
        click.echo()
    sys.stdout.flush()


def tables(found: Look, beside: Beside) -> list[Drawn]:
    """The tables of a look. Rates are empty in the first one."""
    queues = [
        (
            *cells(row, found.at_ms),
            f"{row.cancelled:,}",
            *(f"{rate:,.1f}" if rate is not None else "" for rate in row.rates),
        )
        for row in found.rows
    ]
    told: list[Drawn] = [(HEAD, queues, " ".join(HEAD[2:]))]
    rows = [_working(each) for each in beside.workers if each.held or each.hanging]
    if not rows and len(found.rows) == 1:
        rows = [(text(worker), f"{jobs:,}", "", "") for worker, jobs in found.rows[0].held]
    if rows:
        told.append((WORKER_HEAD, rows, "IN-FLIGHT HANGING"))
    if beside.failures:
        told.append((FAILURE_HEAD, list(map(shown, beside.failures)), "DELIVERY"))
    return told


def _working(worker: WorkerStatus) -> tuple[str, ...]:
    come = [progress_text(each) for each in worker.progress.values()]
    hanging = f"{worker.hanging:,}" if worker.hanging else ""
    return one_line(worker.name), f"{worker.held:,}", hanging, "; ".join(come[:PROGRESS])


class _Screen:
    """Draws looks in place with rich, until the block ends; then the last one stays."""

    def __enter__(self) -> Show:
        # here: rich is slow to load, and only a terminal needs it
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()
        return self._draw

    def _draw(self, found: Look, beside: Beside) -> None:
        # here: as above
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        drawn: list[Table] = []
        for head, rows, right in tables(found, beside):
            table = Table()
            for name in head:
                table.add_column(name, justify="right" if name in right.split() else "left")
            for row in rows:
                table.add_row(*map(Text, row))
            drawn.append(table)
        self._live.update(Group(*drawn), refresh=True)

    def __exit__(self, *raised: object) -> None:
        self._live.stop()
