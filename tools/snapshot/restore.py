"""`tidelog snapshot restore`: create an independent store from a snapshot and the log after it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.place import place_of
from tidelog.snapshot.restore import restore
from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.latest import named
from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.snapshot.facts import NOTE_URL, progress
from tidelog.tools.text import parse_time, path_value, time_text


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The value of --until-time, as tools.text.parse_time reads it."""
    if text is None:
        return None
    try:
        return max(parse_time(text, time.time_ns() // 1_000_000), 0)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time; give 2026-11-21T10:00:00Z, a Unix time, or 15m for 15 minutes ago"
        ) from None


@tool_command(
    "tidelog snapshot restore s3://backups/orders/00000000000000004711 restored",
    "tidelog snapshot restore orders-data/snapshots/00000000000000004711 restored",
    "tidelog snapshot restore orders-data/snapshots/00000000000000004711 restored --until-lsn 5000",
    "tidelog snapshot restore backup/00000000000000004711 restored --aof orders-data "
    "--until-time 2026-11-21T10:00:00Z",
    note=NOTE_URL,
)
@click.argument("snapshot")
@click.argument("target", type=STORE_PATH)
@click.option(
    "--aof",
    type=STORE_PATH,
    help="Log to apply after the snapshot: a store or its folder aof/. Default: the store that contains the snapshot.",
)
@click.option(
    "--until-lsn",
    type=click.IntRange(min=0),
    help="Apply the log up to this LSN, or to the end of the last unit before it.",
)
@click.option(
    "--until-time",
    "until_ms",
    callback=moment,
    help="Apply the log up to the last unit at or before this time: ISO 8601, a Unix time, or 15m for 15 minutes ago.",
)
@json_option()
def command(
    snapshot: str,
    target: Path,
    aof: Path | None,
    until_lsn: int | None,
    until_ms: int | None,
    as_json: bool,
) -> None:
    with closing(place_of(named(snapshot))) as place:
        made = restore(
            RealDisk(),
            place,
            target,
            aof=aof,
            until_lsn=until_lsn,
            until_ms=until_ms,
            progress=progress,
        )
    if as_json:
        facts = made._asdict() | {"path": path_value(made.path), "uuid": made.uuid.hex()}
        console.json_object(facts)
        return
    written = f", last written {time_text(made.now_ms)}" if made.lsn else ""
    click.echo(f"{made.path} contains everything through LSN {made.lsn}{written}")
    if made.records:
        click.echo(f"{made.records:,} records were applied from the log after the snapshot")
    if until_lsn is not None and made.lsn != until_lsn:
        click.echo(f"LSN {until_lsn} is in the middle of a unit, so that whole unit was left out")
