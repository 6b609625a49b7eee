"""`tidelog snapshot verify`: check that a snapshot is unchanged since it was published."""

from __future__ import annotations

from contextlib import closing

import click

from tidelog.disk.readable import readable
from tidelog.disk.real import RealDisk
from tidelog.snapshot.place import is_url, local, place_of
from tidelog.snapshot.scrub import verify_place, verify_snapshot
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.latest import named
from tidelog.tools.snapshot.facts import NOTE_URL, progress
from tidelog.tools.text import path_value


@tool_command(
    "tidelog snapshot verify s3://backups/orders/00000000000000004711",
    "tidelog snapshot verify orders-data/snapshots/00000000000000004711; echo $?",
    note=NOTE_URL,
)
@click.argument("snapshot")
@json_option()
def command(snapshot: str, as_json: bool) -> int:
    snapshot = named(snapshot)
    if is_url(snapshot):
        with closing(place_of(snapshot)) as place:
            findings, name = verify_place(place, progress), place.name
    else:
        path = local(snapshot)
        findings, name = verify_snapshot(RealDisk(), path, progress), str(path)
    if as_json:
        texts = [readable(finding.text) for finding in findings]
        console.json_object({"path": path_value(name), "findings": texts})
    else:
        for finding in findings:
            click.echo(finding.text)
        if not findings:
            click.echo(f"{name}: every byte, row and count is as it was published")
    return exits.DAMAGED if findings else exits.OK
