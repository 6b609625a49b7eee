"""`tidelog snapshot create`: copy the newest checkpoint and the log after it into one portable snapshot.

If a process serves the store, it makes the snapshot.
"""

from __future__ import annotations

from pathlib import Path

import click

import tidelog
from tidelog.client.address import is_served
from tidelog.disk.real import RealDisk
from tidelog.snapshot.beside import create_beside
from tidelog.snapshot.portable import Snapshot
from tidelog.tools import console, exits
from tidelog.tools.logfiles import store_root
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.snapshot.facts import facts, progress
from tidelog.tools.text import size_text


@at_path_or_url(
    "tidelog snapshot create orders-data",
    "tidelog snapshot create --url redis://orders.example:6379",
    "tidelog snapshot create orders-data --json | jq -r .path",
    codes=exits.CHANGING,
    note="PATH may be the URL of a server, which keeps the snapshot on its own disk.",
)
def command(path: PathOrUrl, as_json: bool) -> None:
    made = _created(path)
    if as_json:
        console.json_object(facts(made) | {"existed": made.existed})
        return
    counts = made.manifest.counts
    what = "exists already" if made.existed else "made"
    click.echo(
        f"{made.path} {what}: everything through LSN {made.lsn}, {counts.entries:,} entries in "
        f"{counts.streams:,} streams, {size_text(made.manifest.data_bytes)}"
    )


def _created(path: PathOrUrl) -> Snapshot:
    disk = RealDisk()
    root = path if isinstance(path, str) else store_root(disk, path)
    if isinstance(root, Path) and not is_served(root):
        return create_beside(disk, root, progress=progress)
    with tidelog.connect(root) as store:
        return store.snapshot()
