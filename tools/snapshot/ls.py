"""`tidelog snapshot ls`: one line per snapshot, oldest first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tidelog.disk.readable import readable
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import Snapshot, Unreadable, snapshots
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.snapshot.facts import facts, snapshots_of
from tidelog.tools.text import path_value, size_text, time_text

HEAD = ("SNAPSHOT", "LAST WRITE", "CREATED", "KEYS", "STREAMS", "ENTRIES", "PENDING", "BYTES")


@tool_command(
    "tidelog snapshot ls orders-data", "tidelog snapshot ls orders-data --json | jq -r .path"
)
@click.argument("path", type=STORE_PATH)
@json_option("Print one JSON object per line; sizes are in bytes.")
def command(path: Path, as_json: bool) -> int:
    disk = RealDisk()
    found = snapshots(disk, snapshots_of(disk, path))
    bad = [item for item in found if isinstance(item, Unreadable)]
    if as_json:
        console.objects(map(as_object, found))
    else:
        console.table(HEAD, list(map(cells, found)), right="KEYS STREAMS ENTRIES PENDING BYTES")
        for item in bad:
            click.echo(f"tidelog: {item.error}", err=True)
    return exits.DAMAGED if bad else exits.OK


def as_object(item: Snapshot | Unreadable) -> dict[str, Any]:
    if isinstance(item, Unreadable):
        return {"path": path_value(item.path), "error": readable(str(item.error))}
    return facts(item)


def cells(item: Snapshot | Unreadable) -> tuple[str, ...]:
    if isinstance(item, Unreadable):
        return item.path.name, "cannot be read", *[""] * (len(HEAD) - 2)
    manifest, counts = item.manifest, item.manifest.counts
    keys = sum(row.keys for row in counts.databases)
    return (
        *(item.path.name, time_text(manifest.now_ms), time_text(manifest.created_ms)),
        *(f"{each:,}" for each in (keys, counts.streams, counts.entries, counts.pending)),
        size_text(manifest.data_bytes),
    )
