"""`tidelog snapshot prune`: delete old snapshots."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import prune
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.snapshot.facts import snapshots_of
from tidelog.tools.text import path_value, size_text


@tool_command(
    "tidelog snapshot prune orders-data --keep 7 --dry-run",
    "tidelog snapshot prune orders-data --keep 7",
    codes=exits.CHANGING,
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--keep", type=click.IntRange(min=0), required=True, help="Number of newest snapshots to keep."
)
@click.option(
    "--dry-run", is_flag=True, help="List the snapshots that would be deleted; change nothing."
)
@json_option()
def command(path: Path, keep: int, dry_run: bool, as_json: bool) -> None:
    disk = RealDisk()
    pruned = prune(disk, snapshots_of(disk, path), keep, dry_run=dry_run)
    nbytes = sum(item.manifest.data_bytes for item in pruned.deleted)
    if as_json:
        facts = {
            "deleted": [path_value(item.path) for item in pruned.deleted],
            "kept": [path_value(item.path) for item in pruned.kept],
            "held": [path_value(item.path) for item in pruned.held],
            "unreadable": [path_value(item.path) for item in pruned.left],
            "bytes": nbytes,
            "dry_run": dry_run,
        }
        console.json_object(facts)
        return
    for item in pruned.deleted:
        click.echo(str(item.path))
    done = "would be deleted; nothing was changed" if dry_run else "deleted"
    click.echo(
        f"{len(pruned.deleted):,} snapshots with {size_text(nbytes)} {done}, {len(pruned.kept):,} kept"
    )
    for item in pruned.held:
        click.echo(
            f"tidelog: {'would not be' if dry_run else 'not'} deleted: {item.path} is held by a reader; prune again "
            "when it has finished",
            err=True,
        )
    for left in pruned.left:
        click.echo(f"tidelog: not deleted: {left.error}", err=True)
