"""`tidelog queue ls`: one line per queue and group."""

from __future__ import annotations

import json

import click

from tidelog.tools import console
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.store import names_of, opened
from tidelog.tools.queue.value import age_text, one_line
from tidelog.tools.text import examples

HEAD = ("QUEUE", "GROUP", "DEPTH", "WAITING", "IN-FLIGHT", "PAUSED", "DEAD", "OLDEST")


@click.command(
    cls=AtPlace,
    help="List the queues of a store.",
    epilog=examples(
        "tidelog queue ls orders-data",
        "tidelog queue ls orders-data --json | jq 'select(.dead > 0)'",
    ),
)
@click.argument("path", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(path: Place, as_json: bool) -> None:
    with opened(path) as store:
        stats = [store.queue(name, group).stats() for name, group in names_of(store)]
    if as_json:
        for one in stats:
            click.echo(json.dumps(one.as_dict()))
        return
    rows = [
        (
            one_line(one.name),
            one_line(one.group),
            f"{one.depth:,}",
            f"{one.waiting:,}",
            f"{sum(one.in_flight.values()):,}",
            f"{one.paused:,}",
            f"{one.dead:,}",
            age_text(one.oldest_seconds),
        )
        for one in stats
    ]
    console.table(HEAD, rows, right="DEPTH WAITING IN-FLIGHT PAUSED DEAD OLDEST")
