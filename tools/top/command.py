"""`tidelog top`: streams with rates, groups with lag and pending entries, and queues, as they change."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.installed import installed
from tidelog.tools.replica.client import is_url, place_of
from tidelog.tools.text import path_value, place_text
from tidelog.tools.times import every_option
from tidelog.tools.top.look import SORTS, Look, Source, ranked
from tidelog.tools.top.words import (
    GROUP_HEAD,
    QUEUE_HEAD,
    STREAM_HEAD,
    as_object,
    fact_lines,
    group_cells,
    queue_cells,
    stream_cells,
)

VERSION: Final = 1
ROWS: Final = 20
RATE_SECONDS: Final = 1.0  # between the two looks that --rates needs


@tool_command(
    "tidelog top orders-data",
    "tidelog top redis://127.0.0.1:6379 --db 3 --sort pending",
    "tidelog top orders-data --once --filter orders --count 5",
    "tidelog top orders-data --json | jq '.streams[] | select(.lag > 100)'",
)
@click.argument("place", metavar="PATH|URL")
@every_option
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORTS[0],
    show_default=True,
    help="Sort the streams by this column, the most urgent first.",
)
@click.option(
    "--db",
    type=click.IntRange(0),
    metavar="N",
    help="Show only this database. Default: all of a store, 0 of a server.",
)
@click.option(
    "--filter", "wanted", default="", metavar="TEXT", help="Show only keys that contain TEXT."
)
@click.option(
    "--count",
    type=click.IntRange(1),
    default=ROWS,
    show_default=True,
    help="Number of streams that --once prints.",
)
@click.option(
    "--helpers", is_flag=True, help="Also show the streams that queues keep for themselves."
)
@click.option("--rates", is_flag=True, help="With --once or --json: look twice, a second apart.")
@click.option("--once", is_flag=True, help="Print one look as tables, and end.")
@json_option("Print one look as one JSON object, and end.")
def command(
    place: str,
    every: float,
    sort: str,
    db: int | None,
    wanted: str,
    count: int,
    helpers: bool,
    rates: bool,
    once: bool,
    as_json: bool,
) -> None:
    if not once and not as_json:
        if rates:
            raise click.UsageError("--rates belongs to --once and --json")
        installed("tidelog top", "textual", extra="top")
    with closing(source_of(place, db, helpers=helpers)) as source:
        if not once and not as_json:
            # here: it loads textual
            from tidelog.tools.top.app import Top

            Top(source, every=every, sort=sort, wanted=wanted).go()
            return
        look = source.look(())
        if rates:
            time.sleep(RATE_SECONDS)
            look = source.look(())
        look = look._replace(streams=ranked(look.streams, sort, reverse=False, wanted=wanted))
        if as_json:
            groups = [source.groups(row.place) for row in look.streams]
            told = {"v": VERSION, "place": path_value(source.title)}
            console.json_object(told | as_object(look, groups, source.queues()))
        else:
            show(source, look, count)


def source_of(place: str, db: int | None = None, *, helpers: bool = False) -> Source:
    """The source at a directory or a URL. Raises as Directory and Server; click.BadParameter."""
    if is_url(place):
        # here: redis-py is loaded for a server only
        from tidelog.tools.top.server import Server

        address = place_of(place)
        return Server(address, address.db if db is None else db, helpers)
    # here: the engine is loaded for a directory only
    from tidelog.engine.keys.state import DATABASES
    from tidelog.tools.top.directory import Directory

    if db is not None and db >= DATABASES:
        raise click.BadParameter(
            f"a store has the databases 0 to {DATABASES - 1}", param_hint="--db"
        )
    return Directory(Path(place), db, helpers)


def show(source: Source, look: Look, count: int) -> None:
    for line in [source.title, *fact_lines(look)]:
        click.echo(line)
    shown = look.streams[:count]
    click.echo()
    cells = [stream_cells(row, look.at_ms) for row in shown]
    console.table(STREAM_HEAD, cells, right=" ".join(STREAM_HEAD[1:]))
    if len(shown) < len(look.streams):
        click.echo(f"and {len(look.streams) - len(shown):,} streams more")
    groups = [
        (place_text(row.db, row.key), *group_cells(group, look.at_ms))
        for row in shown
        if row.groups
        for group in source.groups(row.place)
    ]
    if groups:
        click.echo()
        console.table(("STREAM", *GROUP_HEAD), groups, right=" ".join(GROUP_HEAD[2:]))
    queues = source.queues()
    if queues:
        click.echo()
        rows = [queue_cells(row, look.at_ms) for row in queues]
        console.table(QUEUE_HEAD, rows, right=" ".join(QUEUE_HEAD[2:]))
