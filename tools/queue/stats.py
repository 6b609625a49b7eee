"""`tidelog queue stats`: the counts of a queue, and with --over its rates."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from time import sleep

import click

import tidelog
from tidelog.jobs.stats import Stats
from tidelog.tools.names import queues
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.store import AnyStore, group_option, now_ns, reading
from tidelog.tools.queue.value import age_text, jobs_text, one_line
from tidelog.tools.text import examples


def a_number(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN, which click's range check lets through."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds")
    return value


@click.command(
    cls=AtPlace,
    help="Show the counts of a queue, and measure its rates.",
    epilog=examples(
        "tidelog queue stats orders-data mails",
        "tidelog queue stats orders-data mails --over 10 --json | jq .done_per_second",
        "tidelog queue stats redis://127.0.0.1:6379 mails",
    ),
)
@click.argument("path", type=PLACE)
@click.argument("name", shell_complete=queues)
@group_option
@click.option(
    "--over",
    "seconds",
    type=click.FloatRange(0, 86_400, min_open=True),
    callback=a_number,
    help="Measure the rates for this many seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    path: Place, name: str, group: str | None, seconds: float | None, as_json: bool
) -> None:
    with reading(path, name, group) as (store, queue):
        stats = queue.stats()
        if seconds is not None:
            began, added = now_ns(), ever_added(store, name)
            sleep(seconds)
            if isinstance(store, tidelog.Store):  # a server is always current
                store.refresh()
            earlier, stats = stats, queue.stats()
            put = max(0, ever_added(store, name) - added)
            done = max(0, earlier.depth + put - stats.depth)
            passed = max(seconds, (now_ns() - began) / 1e9)
            stats = replace(stats, put_per_second=put / passed, done_per_second=done / passed)
    if as_json:
        click.echo(json.dumps(stats.as_dict()))
    else:
        show(stats)


def ever_added(store: AnyStore, name: str) -> int:
    """The number of jobs ever put."""
    return int(store.xinfo_stream(name)["entries-added"]) if store.exists(name) else 0


def show(stats: Stats) -> None:
    # fmt: off
    click.echo(f"queue        {one_line(stats.name)}, group {one_line(stats.group)}")
    oldest = f", the oldest {age_text(stats.oldest_seconds)} old" if stats.depth else ""
    click.echo(f"depth        {jobs_text(stats.depth, 'unfinished ')}{oldest}")
    click.echo(f"waiting      {stats.waiting:,}")
    click.echo(f"in flight    {sum(stats.in_flight.values()):,}")
    for worker, count in sorted(stats.in_flight.items()):
        click.echo(f"             {count:,} with {one_line(worker)}")
    click.echo(f"paused       {stats.paused:,} until their next try")
    if stats.scheduled:
        click.echo(f"scheduled    {stats.scheduled:,} not due yet")
    click.echo(f"dead         {stats.dead:,}")
    click.echo(f"failures     {stats.failures:,} kept")
    click.echo(f"finished     {stats.kept:,} kept")
    # fmt: on
    if stats.put_per_second is not None:
        click.echo(f"put          {stats.put_per_second:,.1f}/s")
    if stats.done_per_second is not None:
        click.echo(f"done         {stats.done_per_second:,.1f}/s")
