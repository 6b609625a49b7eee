"""`tidelog repair`: say to the record what a repair would lose, and repair: in a copy, or in place.

Ways:

    --cut             the newest base (checkpoint, snapshot, LSN 1) and the log behind it up to the damage
    --skip-damaged    also the intact records behind the damage that the commands accept, in a store with a new uuid

Without `--to` and `--in-place` nothing is written.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import ExitStack
from pathlib import Path

import click

from tidelog.aof import layout
from tidelog.aof.lock import acquire
from tidelog.disk import recipe
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.repair import in_place, writing
from tidelog.tools.repair.look import look, place_text
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import plan
from tidelog.tools.repair.shown import (
    SALVAGE,
    facts,
    salvage_facts,
    show,
    show_nothing_kept,
    what_is_lost,
)


@tool_command(
    "tidelog repair orders-data",
    "tidelog repair orders-data --to orders-repaired",
    "tidelog repair orders-data --skip-damaged --to orders-repaired",
    "tidelog repair orders-data --in-place",
    codes=exits.CHANGING,
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--cut",
    "way_cut",
    is_flag=True,
    help="Keep everything before the damage. This is the default.",
)
@click.option(
    "--skip-damaged",
    is_flag=True,
    help="Also apply the intact records behind the damage, as commands that may be refused. The copy is another store.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="Write the repaired copy to this new directory.",
)
@click.option(
    "--in-place",
    "in_its_place",
    is_flag=True,
    help="Repair the store itself, if there is no room for a copy. Everything removed is kept in quarantine/.",
)
@json_option()
def command(
    path: Path,
    way_cut: bool,
    skip_damaged: bool,
    target: Path | None,
    in_its_place: bool,
    as_json: bool,
) -> int:
    if way_cut and skip_damaged:
        raise click.UsageError("--cut and --skip-damaged cannot be used together")
    if in_its_place and target is not None:
        raise click.UsageError("--in-place and --to cannot be used together")
    if in_its_place and skip_damaged:
        raise click.UsageError(
            "--skip-damaged makes another store, so it needs --to NEW-DIRECTORY and not --in-place"
        )
    with ExitStack() as held:
        files = MendedFiles(path)
        layout.check(files.disk, files.root)
        if in_its_place:
            lock = acquire(files.disk, files.root, os.getpid())
            held.callback(lock.close)
            in_place.settle(files)
            files = MendedFiles(path)
        else:
            held.enter_context(files.still())
        return repair(files, target, skip_damaged, in_its_place, as_json)


def repair(
    files: MendedFiles, target: Path | None, skip_damaged: bool, in_its_place: bool, as_json: bool
) -> int:
    """Say what can be kept, and repair what was asked for. Returns the exit code."""
    seen = look(files)
    found = plan(files, seen, skip_damaged=skip_damaged)
    if found is not None and found.reach.damage is not None:
        reason = place_text(found.reach.damage)
        seen.damages.extend([] if reason in seen.damages else [reason])
    if not seen.damages:
        text = f"{files.root} is not damaged; there is nothing to repair"
        console.told(as_json, {"damage": []}, text)
        return exits.OK
    if found is None or not found.lsn:
        show_nothing_kept(seen, as_json=as_json)
        return exits.DAMAGED
    told = facts(seen, found, lost := what_is_lost(files, found))
    if not as_json:
        show(files.root, seen, found, lost)
    if in_its_place:
        now = time.time_ns() // 1_000_000
        told["quarantine"] = str(in_place.repair(files, seen, found, _text(told), now))
        done = f"Repaired {files.root}; everything removed is in {told['quarantine']}."
    elif target is not None:
        uuid = secrets.token_bytes(16) if skip_damaged else None
        writing.write(files, found, target, uuid=uuid)
        if found.salvaged is not None:
            recipe.publish(files.disk, target / SALVAGE, _text(salvage_facts(found.salvaged)))
        done = f"Wrote the repaired copy to {target}; {files.root} was not changed."
    else:
        done = "Nothing was written. To write the copy, repeat the command with --to NEW-DIRECTORY"
    console.told(as_json, told, done)
    return exits.DAMAGED if target is None and not in_its_place else exits.OK


def _text(told: object) -> bytes:
    return json.dumps(told, indent=1).encode() + b"\n"
