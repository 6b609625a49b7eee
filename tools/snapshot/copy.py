"""`tidelog snapshot copy`: bring a snapshot from one place to another."""

from __future__ import annotations

from contextlib import closing

import click

from tidelog.snapshot.copying import copy_snapshot
from tidelog.snapshot.place import place_of
from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.latest import named
from tidelog.tools.snapshot.facts import NOTE_URL, manifest_facts, progress
from tidelog.tools.text import size_text


@tool_command(
    "tidelog snapshot copy orders-data/snapshots/00000000000000004711 backup/00000000000000004711",
    "tidelog snapshot copy backup/00000000000000004711 s3://backups/orders/00000000000000004711",
    "tidelog snapshot copy s3://backups/orders/00000000000000004711 orders-4711 --json | jq .bytes",
    note=NOTE_URL,
)
@click.argument("snapshot")
@click.argument("target")
@json_option()
def command(snapshot: str, target: str, as_json: bool) -> None:
    with closing(place_of(named(snapshot))) as source, closing(place_of(target)) as to:
        made = copy_snapshot(source, to, progress)
    if as_json:
        facts = {"from": source.name, "kept_bytes": made.kept, "existed": made.existed}
        console.json_object(manifest_facts(made.name, made.manifest) | facts)
        return
    size = size_text(made.manifest.data_bytes)
    if made.existed:
        click.echo(f"{made.name} exists already, {size}; every byte is as it was published")
        return
    again = f", {size_text(made.kept)} of it were there already" if made.kept else ""
    click.echo(f"{made.name} made: everything through LSN {made.manifest.lsn}, {size}{again}")
