"""`tidelog queue forget`: free a dedup ID, from the command line."""

from __future__ import annotations

import json

import click

from tidelog.tools import exits
from tidelog.tools.names import queues
from tidelog.tools.places import PLACE, AtPlace, Place
from tidelog.tools.queue.store import group_option, writing
from tidelog.tools.text import examples


@click.command(
    cls=AtPlace,
    help="Free a dedup ID, so that the next put with it adds a job.",
    epilog=examples(
        "tidelog queue forget orders-data mails order-7",
        "tidelog queue forget redis://127.0.0.1:6379 mails order-7",
        codes=(*exits.READING, exits.LOCKED),
    ),
)
@click.argument("path", type=PLACE)
@click.argument("name", shell_complete=queues)
@click.argument("dedup_id", metavar="ID")
@group_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(path: Place, name: str, dedup_id: str, group: str | None, as_json: bool) -> None:
    with writing(path, name, group, "queue.forget()") as (_, queue):
        known = queue.forget(dedup_id)
    if as_json:
        click.echo(json.dumps({"forgotten": int(known)}))
    else:
        click.echo("1 ID is free" if known else "the ID was free")
