"""`tidelog queue watch`: the queues of a store as they change, drawn in place on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import click

import tidelog
from tidelog.jobs.rows import Failure
from tidelog.jobs.stats import Stats
from tidelog.tools import console
from tidelog.tools.names import queues
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.stats import ever_added
from tidelog.tools.queue.store import AnyStore, found, group_option, names_of, opened
from tidelog.tools.queue.value import age_text, cell, moment_text, one_line
from tidelog.tools.text import examples

VERSION: Final = 1
FAILURES: Final = 5
HEAD: Final = (
    *(
        "QUEUE",
        "GROUP",
        "DEPTH",
        "WAITING",
        "IN-FLIGHT",
        "PAUSED",
        "DEAD",
        "PUT/S",
        "DONE/S",
        "OLDEST",
    ),
)
RIGHT: Final = "DEPTH WAITING IN-FLIGHT PAUSED DEAD PUT/S DONE/S OLDEST"
WORKER_HEAD: Final = ("WORKER", "IN-FLIGHT")
FAILURE_HEAD: Final = ("TIME", "JOB", "DELIVERY", "WORKER", "ERROR")
# head, rows, columns that are set to the right
Drawn = tuple[tuple[str, ...], list[tuple[str, ...]], str]
_SLEEP: Callable[[float], None] = time.sleep  # tests put another in its place


class Row(NamedTuple):
    """A queue and its rates since the previous look; None in the first look."""

    stats: Stats
    added: int
    put_per_s: float | None
    done_per_s: float | None

    def cells(self) -> tuple[str, ...]:
        """The columns of HEAD."""
        stats = self.stats
        counts = (
            stats.depth,
            stats.waiting,
            sum(stats.in_flight.values()),
            stats.paused,
            stats.dead,
        )
        rates = (
            "" if rate is None else f"{rate:,.1f}" for rate in (self.put_per_s, self.done_per_s)
        )
        return (
            *(one_line(stats.name), one_line(stats.group)),
            *(f"{count:,}" for count in counts),
            *rates,
            age_text(stats.oldest_seconds),
        )

    def as_object(self) -> dict[str, Any]:
        """The row in JSON, with the rates between two looks."""
        rates = {"put_per_second": self.put_per_s, "done_per_second": self.done_per_s}
        return {"v": VERSION, **self.stats.as_dict(), **rates}


class Look(NamedTuple):
    """The queues at one moment; with a NAME also its latest failures."""

    at: float
    rows: list[Row]
    failures: list[Failure]


@click.command(
    cls=AtPlace,
    help="Show the queues of a store as they change.",
    epilog=examples(
        "tidelog queue watch orders-data",
        "tidelog queue watch orders-data mails --every 5",
        "tidelog queue watch redis://127.0.0.1:6379 --count 2 --json | jq .done_per_second",
    ),
)
@click.argument("path", type=PLACE)
@click.argument("name", required=False, shell_complete=queues)
@group_option
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time from one look to the next.",
)
@click.option("--count", type=click.IntRange(1), help="End after this number of looks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue and look.")
def command(
    path: Place,
    name: str | None,
    group: str | None,
    every: float,
    count: int | None,
    as_json: bool,
) -> None:
    if group is not None and name is None:
        raise click.UsageError("--group belongs to a NAME")
    with opened(path) as store, ExitStack() as stack:
        # A name that is not there is an error at once. Queues may come and go later.
        wanted = None if name is None else found(store, path, name, group).queue.group
        show: Callable[[Look], None] = print_json if as_json else print_tables
        if not as_json and sys.stdout.isatty():
            show = stack.enter_context(_Screen())
        before: Look | None = None
        left = count
        try:
            while left is None or left > 0:
                if before is not None:
                    _SLEEP(every)
                    if isinstance(store, tidelog.Store):  # a server is always current
                        store.refresh()
                before = look(store, name, wanted, before)
                show(before)
                left = None if left is None else left - 1
        except KeyboardInterrupt:
            pass  # the usual end


def look(store: AnyStore, name: str | None, group: str | None, before: Look | None) -> Look:
    """The figures now, with the rates since `before`."""
    at = time.monotonic()
    known = {(row.stats.name, row.stats.group): row for row in before.rows} if before else {}
    passed = max(at - before.at, 0.001) if before else 0.0
    rows: list[Row] = []
    for each, its_group in names_of(store):
        if name is not None and (each, its_group) != (name, group):
            continue
        stats, added = store.queue(each, its_group, codec="bytes").stats(), ever_added(store, each)
        earlier = known.get((each, its_group))
        if earlier is None:
            rows.append(Row(stats, added, None, None))
            continue
        put = max(0, added - earlier.added)
        done = max(0, earlier.stats.depth + put - stats.depth)
        rows.append(Row(stats, added, put / passed, done / passed))
    failures: list[Failure] = []
    if name is not None and group is not None and rows:
        failures = store.queue(name, group, codec="bytes").failures(count=FAILURES)
    return Look(at, rows, failures)


def print_json(found: Look) -> None:
    for row in found.rows:
        click.echo(json.dumps(row.as_object()))
    sys.stdout.flush()


def print_tables(found: Look) -> None:
    """For a pipe: the tables one below the other."""
    for head, rows, right in tables(found):
        console.table(head, rows, right)
        click.echo()
    sys.stdout.flush()


def tables(found: Look) -> list[Drawn]:
    """The tables of a look."""
    told: list[Drawn] = [(HEAD, [row.cells() for row in found.rows], RIGHT)]
    workers = sorted(found.rows[0].stats.in_flight.items()) if len(found.rows) == 1 else []
    if workers:
        cells: list[tuple[str, ...]] = [
            (one_line(worker), f"{count:,}") for worker, count in workers
        ]
        told.append((WORKER_HEAD, cells, "IN-FLIGHT"))
    if found.failures:
        told.append((FAILURE_HEAD, [_failure(each) for each in found.failures], "DELIVERY"))
    return told


def _failure(failure: Failure) -> tuple[str, ...]:
    return (
        *(moment_text(failure.at), one_line(failure.job_id), str(failure.deliveries)),
        *(one_line(failure.worker), cell(one_line(failure.error))),
    )


class _Screen:
    """Draws looks in place with rich, until the block ends; then the last one stays."""

    def __enter__(self) -> Callable[[Look], None]:
        # here: rich is slow to load, and only a terminal needs it
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()
        return self._draw

    def _draw(self, found: Look) -> None:
        # here: as above
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        drawn: list[Table] = []
        for head, rows, right in tables(found):
            table = Table()
            for name in head:
                table.add_column(name, justify="right" if name in right.split() else "left")
            for row in rows:
                table.add_row(*map(Text, row))
            drawn.append(table)
        self._live.update(Group(*drawn), refresh=True)

    def __exit__(self, *raised: object) -> None:
        self._live.stop()
