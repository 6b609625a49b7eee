"""`tidelog snapshot create`: copy the newest checkpoint and the log after it into one portable snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.beside import create_beside
from tidelog.tools import exits
from tidelog.tools.logfiles import STORE_PATH, store_root
from tidelog.tools.snapshot.facts import facts, progress
from tidelog.tools.text import examples, size_text


@click.command(
    help="Create a snapshot of a store; its writer may be running.",
    epilog=examples(
        "tidelog snapshot create orders-data",
        "tidelog snapshot create orders-data --json | jq -r .path",
        codes=(*exits.READING, exits.LOCKED),
    ),
)
@click.argument("path", type=STORE_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(path: Path, as_json: bool) -> None:
    disk = RealDisk()
    made = create_beside(disk, store_root(disk, path), progress=progress)
    if as_json:
        click.echo(json.dumps(facts(made) | {"existed": made.existed}))
        return
    counts = made.manifest.counts
    what = "exists already" if made.existed else "made"
    click.echo(
        f"{made.path} {what}: everything through LSN {made.lsn}, {counts.entries:,} entries in "
        f"{counts.streams:,} streams, {size_text(made.manifest.data_bytes)}"
    )
