"""`tidelog snapshot show`: print the manifest of a snapshot."""

from __future__ import annotations

from contextlib import closing

import click

from tidelog.snapshot.place import place_of
from tidelog.snapshot.sealed import read_manifest
from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.latest import named
from tidelog.tools.snapshot.facts import NOTE_URL, manifest_facts, stream_facts
from tidelog.tools.text import argument, size_text, time_text


@tool_command(
    "tidelog snapshot show s3://backups/orders/00000000000000004711",
    "tidelog snapshot show orders-data/snapshots/00000000000000004711",
    "tidelog snapshot show orders-data/snapshots/00000000000000004711 --json | jq .entries",
    note=NOTE_URL,
)
@click.argument("snapshot")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="List at most this many streams, the largest first.",
)
@json_option("Print one JSON object, with all streams.")
def command(snapshot: str, count: int, as_json: bool) -> None:
    with closing(place_of(named(snapshot))) as place:
        manifest = read_manifest(place)
    counts = manifest.counts
    if as_json:
        facts = manifest_facts(place.name, manifest)
        console.json_object(facts | {"largest": stream_facts(manifest)})
        return
    # fmt: off
    click.echo(f"store        {manifest.uuid.hex()}, {len(manifest.epochs)} lives")
    click.echo(f"holds        everything through LSN {manifest.lsn}")
    click.echo(f"last write   {time_text(manifest.now_ms) if manifest.lsn else 'never'}")
    click.echo(f"created      {time_text(manifest.created_ms)}")
    click.echo(f"data         {size_text(manifest.data_bytes)}, BLAKE2b {manifest.blake2b}")
    click.echo(f"streams      {counts.streams:,} with {counts.entries:,} entries")
    click.echo(f"groups       {counts.groups:,} with {counts.pending:,} pending entries")
    # fmt: on
    for row in counts.databases:
        click.echo(f"database {row.db:<3} {row.keys:,} keys, {row.expires:,} of them expire")
    rows = [
        (
            str(row.db),
            argument(row.key),
            f"{row.entries:,}",
            f"{row.groups:,}",
            f"{row.pending:,}",
        )
        for row in counts.largest[:count]
    ]
    if rows:
        click.echo()
        head = ("DB", "STREAM", "LENGTH", "GROUPS", "PENDING")
        console.table(head, rows, right="LENGTH GROUPS PENDING")
        if counts.streams > len(rows):
            click.echo(f"and {counts.streams - len(rows):,} more")
