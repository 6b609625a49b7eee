"""`tidelog repair`: say to the record what a repair would lose, and make the repaired copy.

Ways, each into a new directory; the damaged store is never changed:

    --cut             the newest base (checkpoint, snapshot, LSN 1) and the log behind it up to the damage
    --skip-damaged    also the intact records behind the damage that the commands accept, in a store with a new uuid
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, Final

import click

from tidelog.aof import layout
from tidelog.aof.errors import Damage
from tidelog.disk import recipe
from tidelog.tools import console, exits
from tidelog.tools.aof.repair import checkpoint_fault, open_files
from tidelog.tools.bases import state_of
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.repair import cut
from tidelog.tools.repair.cut import Plan
from tidelog.tools.repair.lost import Lost, lost_behind
from tidelog.tools.repair.reach import follow
from tidelog.tools.repair.salvage import Salvaged, records_behind
from tidelog.tools.text import argument, examples, json_value, time_text

SALVAGE: Final = "SALVAGE.json"
ROWS_SHOWN: Final = 20
REFUSED_SHOWN: Final = 10


@click.command(
    help="Say what a damaged store has left, and make a repaired copy.",
    epilog=examples(
        "tidelog repair orders-data",
        "tidelog repair orders-data --to orders-repaired",
        "tidelog repair orders-data --skip-damaged --to orders-repaired",
    ),
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    path: Path, way_cut: bool, skip_damaged: bool, target: Path | None, as_json: bool
) -> int:
    if way_cut and skip_damaged:
        raise click.UsageError("--cut and --skip-damaged cannot be used together")
    files, broken_store = open_files(path)
    layout.check(files.disk, files.root)
    damages = [] if broken_store is None else [place_text(broken_store)]
    fault = checkpoint_fault(files)
    damages += [] if fault is None else [fault]
    damages += [
        place_text(item) for _, item in files.frames_past_damage() if isinstance(item, Damage)
    ]
    found = cut.plan(files, skip_damaged=skip_damaged)
    if found is not None and found.reach.damage is not None:
        reason = place_text(found.reach.damage)
        damages += [] if reason in damages else [reason]
    if not damages:
        click.echo(json.dumps({"damage": []}) if as_json else f"{files.root} is not damaged")
        return exits.OK
    if found is None or not found.lsn:
        told = {"damage": damages, "kept": None}
        text = "\n".join([*(f"damage: {damage}" for damage in damages), "Nothing can be kept."])
        click.echo(json.dumps(told) if as_json else text)
        return exits.DAMAGED
    lost = what_is_lost(files, found)
    if as_json:
        click.echo(json.dumps(facts(damages, found, lost)))
    else:
        show(damages, found, lost)
    if target is None:
        if not as_json:
            click.echo(
                "Nothing was written. To write the copy, repeat the command with --to NEW-DIRECTORY"
            )
        return exits.DAMAGED
    cut.write(files, found, target, uuid=secrets.token_bytes(16) if skip_damaged else None)
    if found.salvaged is not None:
        data = json.dumps(salvage_facts(found.salvaged), indent=1).encode()
        recipe.publish(files.disk, target / SALVAGE, data)
    if not as_json:
        click.echo(f"Wrote the repaired copy to {target}; {files.root} was not changed.")
    return exits.OK


def place_text(damage: Damage) -> str:
    return f"{damage.path}, byte {damage.offset}: {damage.reason}"


def what_is_lost(files: LogFiles, found: Plan) -> Lost:
    """The records behind the last LSN before the damage."""
    with state_of(files, found.base) as (state, start):
        follow(files, start, state, found.lsn)
        return lost_behind(records_behind(files, found.lsn), found.lsn, state)


def facts(damages: list[str], found: Plan, lost: Lost) -> dict[str, Any]:
    told: dict[str, Any] = {
        "damage": damages,
        "kept": {
            "first_lsn": 1,
            "last_lsn": found.lsn,
            "time_ms": found.reach.start.now,
            "base": found.base.name,
            "digest": found.digest,
        },
        "unreadable": [list(gap) for gap in lost.gaps],
        "intact_behind": {
            "records": lost.intact,
            "first_lsn": lost.first,
            "last_lsn": lost.last,
            "since_ms": lost.since,
            "until_ms": lost.until,
            "by_key": [
                {"key": json_value(key), "record": name, "records": count}
                for (key, name), count in lost.by_key.most_common()
            ],
        },
        "missing_entries": [row._asdict() | {"key": json_value(row.key)} for row in lost.missing],
    }
    if found.salvaged is not None:
        told["salvage"] = salvage_facts(found.salvaged)
    return told


def salvage_facts(salvaged: Salvaged) -> dict[str, Any]:
    return {
        "applied": salvaged.applied,
        "refused": [row._asdict() | {"key": json_value(row.key)} for row in salvaged.refused],
    }


def show(damages: list[str], found: Plan, lost: Lost) -> None:
    for damage in damages:
        click.echo(f"damage: {damage}")
    when = time_text(found.reach.start.now)
    click.echo(f"Can be kept: LSN 1 to {found.lsn}, up to {when}, over {found.base.name}.")
    for fault in found.faults:
        click.echo(f"Not used: {fault}")
    for first, last in lost.gaps:
        click.echo(f"Cannot be read: LSN {first} to {last}.")
    for row in lost.missing:
        counters = f"entries-added {row.added:,}, then {row.then:,}"
        click.echo(f"{row.entries:,} entries of {argument(row.key)} are missing: {counters}.")
    if lost.intact:
        verb = "Behind the damage" if found.salvaged is not None else "Left out"
        times = f"{time_text(lost.since)} to {time_text(lost.until)}"
        click.echo(
            f"{verb}: {lost.intact:,} intact records, LSN {lost.first} to {lost.last}, {times}."
        )
        rows = [
            (argument(key) if key else "-", name, f"{count:,}")
            for (key, name), count in lost.by_key.most_common(ROWS_SHOWN)
        ]
        console.table(("KEY", "RECORD", "RECORDS"), rows, right="RECORDS")
    if found.salvaged is not None:
        refused = found.salvaged.refused
        click.echo(
            f"Applied behind the damage: {found.salvaged.applied:,} records; refused: {len(refused):,}."
        )
        for each in refused[:REFUSED_SHOWN]:
            click.echo(f"  LSN {each.lsn} {each.record} {argument(each.key)}: {each.reason}")
        if len(refused) > REFUSED_SHOWN:
            click.echo(f"  and {len(refused) - REFUSED_SHOWN:,} more, all in {SALVAGE} of the copy")
    click.echo(f"digest of the copy: {found.digest}")
