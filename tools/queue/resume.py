"""`tidelog queue resume`: deliver the jobs of a paused queue again."""

from __future__ import annotations

import json

import click

from tidelog.tools import exits
from tidelog.tools.names import queues
from tidelog.tools.places import Place, at_place
from tidelog.tools.queue.store import writing
from tidelog.tools.queue.value import one_line


@at_place("tidelog queue resume redis://127.0.0.1:6379 mails", codes=exits.CHANGING)
@click.argument("name", shell_complete=queues)
def command(path: Place, name: str, as_json: bool) -> None:
    with writing(path, name, None, "queue.resume()") as (_, queue):
        changed = queue.resume()
    said = "goes on" if changed else "was not paused"
    click.echo(json.dumps({"resumed": int(changed)}) if as_json else f"{one_line(name)} {said}")
