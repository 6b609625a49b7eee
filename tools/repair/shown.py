"""Shown: what a repair says before it does anything, for people and as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

import click

from tidelog.tools import console
from tidelog.tools.repair.look import Seen
from tidelog.tools.repair.lost import Lost, lost_behind
from tidelog.tools.repair.mended import MendedFiles
from tidelog.tools.repair.plan import Plan
from tidelog.tools.repair.reach import state_at
from tidelog.tools.repair.salvage import Salvaged, records_behind
from tidelog.tools.text import argument, json_value, time_text

SALVAGE: Final = "SALVAGE.json"
ROWS_SHOWN: Final = 20
REFUSED_SHOWN: Final = 10


def what_is_lost(files: MendedFiles, found: Plan) -> Lost:
    """The records behind the last LSN before the damage."""
    with state_at(files, found.base, found.lsn) as state:
        lost = lost_behind(records_behind(files, found.lsn), found.lsn, state)
    first = min((header.first_lsn for header in files.headers()[1]), default=found.first_lsn)
    last = min(found.first_lsn - 1, found.lsn)
    return lost._replace(history=(first, last) if first <= last else None)


def loses_state(found: Plan, lost: Lost) -> bool:
    """Whether the repaired store has another state than the damaged one had."""
    return bool(lost.intact or lost.gaps or found.reach.damage is not None)


def facts(seen: Seen, found: Plan, lost: Lost) -> dict[str, Any]:
    told: dict[str, Any] = {
        "damage": seen.damages,
        "kept": {
            "first_lsn": 1,
            "last_lsn": found.lsn,
            "time_ms": found.reach.start.now,
            "base": found.base.name,
            "digest": found.digest,
            "log_from_lsn": found.first_lsn,
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
        "state_lost": loses_state(found, lost),
        "history_lost": None if lost.history is None else list(lost.history),
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


def show_nothing_kept(seen: Seen, *, as_json: bool) -> None:
    text = "\n".join([*(f"damage: {damage}" for damage in seen.damages), "Nothing can be kept."])
    console.told(as_json, {"damage": seen.damages, "kept": None}, text)


def show(root: Path, seen: Seen, found: Plan, lost: Lost) -> None:
    for damage in seen.damages:
        click.echo(f"damage: {damage}")
    when = time_text(found.reach.start.now)
    click.echo(f"Can be kept: LSN 1 to {found.lsn}, up to {when}, over {found.base.name}.")
    for fault in found.faults:
        click.echo(f"Not used: {fault}")
    if found.first_lsn <= found.lsn:
        click.echo(f"The log of the repaired store: LSN {found.first_lsn} to {found.lsn}.")
    else:
        click.echo("The log of the repaired store: empty; its checkpoint holds everything.")
    if not loses_state(found, lost):
        click.echo("Nothing is lost." if lost.history is None else "No state is lost.")
    if lost.history is not None:
        leave, it = ("leaves", "it") if lost.history[0] == lost.history[1] else ("leave", "them")
        told = f"LSN {_lsns(*lost.history)} {leave} the log, the state has {it}"
        click.echo(f"History is lost: {told}.")
    for first, last in lost.gaps:
        click.echo(f"Cannot be read: LSN {_lsns(first, last)}.")
    for row in lost.missing:
        counters = f"entries-added {row.added:,}, then {row.then:,}"
        entries = "1 entry" if row.entries == 1 else f"{row.entries:,} entries"
        verb = "is" if row.entries == 1 else "are"
        click.echo(f"{entries} of {argument(row.key)} {verb} missing: {counters}.")
    if lost.intact:
        show_intact(root, found, lost)
    if found.salvaged is not None:
        show_salvaged(found.salvaged)
    click.echo(f"digest of the repaired store: {found.digest}")


def _lsns(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def show_intact(root: Path, found: Plan, lost: Lost) -> None:
    verb = "Behind the damage" if found.salvaged is not None else "Left out"
    times = f"{time_text(lost.since)} to {time_text(lost.until)}"
    click.echo(f"{verb}: {lost.intact:,} intact records, LSN {lost.first} to {lost.last}, {times}.")
    rows = [
        (argument(key) if key else "-", name, f"{count:,}")
        for (key, name), count in lost.by_key.most_common(ROWS_SHOWN)
    ]
    console.table(("KEY", "RECORD", "RECORDS"), rows, right="RECORDS")
    if found.salvaged is None:
        words = f"tidelog aof dump {shlex.quote(str(root))} --past-damage --from-lsn {lost.first}"
        click.echo(f"To see them: {words}")


def show_salvaged(salvaged: Salvaged) -> None:
    refused = salvaged.refused
    click.echo(
        f"Applied behind the damage: {salvaged.applied:,} records; refused: {len(refused):,}."
    )
    for each in refused[:REFUSED_SHOWN]:
        click.echo(f"  LSN {each.lsn} {each.record} {argument(each.key)}: {each.reason}")
    if len(refused) > REFUSED_SHOWN:
        click.echo(f"  and {len(refused) - REFUSED_SHOWN:,} more, all in {SALVAGE} of the copy")
