"""`tidelog snapshot show`: print the manifest of a snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import read_snapshot
from tidelog.tools import console
from tidelog.tools.snapshot.facts import SNAPSHOT_PATH, facts, stream_facts
from tidelog.tools.text import argument, examples, size_text, time_text


@click.command(
    help="Show what a snapshot contains.",
    epilog=examples(
        "tidelog snapshot show orders-data/snapshots/00000000000000004711",
        "tidelog snapshot show orders-data/snapshots/00000000000000004711 --json | jq .entries",
    ),
)
@click.argument("snapshot", type=SNAPSHOT_PATH)
@click.option(
    "--count",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="List at most this many streams, the largest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all streams.")
def command(snapshot: Path, count: int, as_json: bool) -> None:
    found = read_snapshot(RealDisk(), snapshot)
    manifest, counts = found.manifest, found.manifest.counts
    if as_json:
        click.echo(json.dumps(facts(found) | {"largest": stream_facts(found, None)}))
        return
    # fmt: off
    click.echo(f"store        {manifest.uuid.hex()}, {len(manifest.epochs)} lives")
    click.echo(f"holds        everything through LSN {found.lsn}")
    click.echo(f"last write   {time_text(manifest.now_ms) if found.lsn else 'never'}")
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
