"""`tidelog import`: make a store of the data of a Redis.

Streams become rows of the new store's checkpoint directly. Commands cannot say all that a stream holds; rows can:
counters, seen-times, consumers without entries, pending entries of deleted messages, dedup tables. TARGET is a store
only when all of it is there; after a cut, the same command starts over.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from tidelog.aof.start import Start
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.filling import Filling
from tidelog.snapshot.restore import Maker, check_target, make
from tidelog.tools import console
from tidelog.tools.failed import Unable
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.importing.filters import filter_of
from tidelog.tools.importing.from_aof import take_directory, take_file
from tidelog.tools.importing.from_server import take_dumps, take_psync
from tidelog.tools.importing.keys import Keys
from tidelog.tools.importing.report import Report
from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.replica.client import is_url, place_of
from tidelog.tools.text import path_value

Take = Callable[[Keys], None]
PSYNC: Final = "psync"
DUMP: Final = "dump"


@tool_command(
    "tidelog import orders-data dump.rdb",
    "tidelog import orders-data appendonlydir",
    "tidelog import orders-data redis://localhost:6379 --until-caught-up",
    "tidelog import orders-data redis://user:password@localhost:6379 --by dump",
    "tidelog import orders-data dump.rdb --db 0 --key 'orders*'",
    "tidelog import orders-data dump.rdb --dry-run --json",
)
@click.argument("target", type=STORE_PATH)
@click.argument("source")
@click.option(
    "--db", "dbs", type=click.IntRange(0), multiple=True, help="Only this database; repeatable."
)
@click.option(
    "--key",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Only keys that match this Redis glob; repeatable.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Read all of the source and print what would be imported. TARGET is not touched.",
)
@json_option()
@click.option(
    "--by",
    type=click.Choice([PSYNC, DUMP]),
    default=PSYNC,
    show_default=True,
    help="How to read a server: as a replica, all as of one moment; or key by key with SCAN and DUMP.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Take the server's further commands too, until Ctrl-C.",
)
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Take the server's further commands too, and end when everything is taken.",
)
@click.option(
    "--truncate-tail",
    is_flag=True,
    help="Leave out a damaged end of an append-only file, such as zeros, behind its last whole command.",
)
def command(
    target: Path,
    source: str,
    dbs: tuple[int, ...],
    globs: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    by: str,
    follow: bool,
    until_caught_up: bool,
    truncate_tail: bool,
) -> None:
    wanted = filter_of(dbs, globs)
    take: Take
    if not is_url(source):
        if follow or until_caught_up:
            raise click.UsageError(
                "--follow and --until-caught-up need a server: redis://host:port"
            )
        path, now_ms = Path(source), time.time_ns() // 1_000_000
        read = take_directory if path.is_dir() else take_file
        take = partial(read, path, wanted=wanted, now_ms=now_ms, truncate_tail=truncate_tail)
        run(target, source, take, dry_run, as_json)
        return
    if by == DUMP and (follow or until_caught_up):
        raise click.UsageError("--follow and --until-caught-up need --by psync")
    if dry_run and (follow or until_caught_up):
        raise click.UsageError("a dry run cannot follow a server")
    place = place_of(source)
    if place.db:
        raise click.UsageError("choose databases with --db, and not in the URL")
    take = partial(take_dumps, place, wanted=wanted)
    if by != DUMP:
        take = partial(
            take_psync, place, wanted=wanted, follow=follow, until_caught_up=until_caught_up
        )
    run(target, str(place), take, dry_run, as_json)


def run(target: Path, source: str, take: Take, dry_run: bool, as_json: bool) -> None:
    """Make the store, or only read the source, and print the report."""
    disk = RealDisk()
    disk.guard(target)
    check_target(disk, target)
    report = Report()
    now_ms = time.time_ns() // 1_000_000
    facts: dict[str, Any] = {
        "path": path_value(target),
        "source": path_value(source),
        "dry_run": dry_run,
    }
    uuid = secrets.token_bytes(16)

    def fill(folder: Path) -> tuple[Start, int, bool]:
        with Filling(disk, folder, uuid, now_ms) as filling:
            keys = Keys(filling, report)
            take(keys)
            keys.flush()
            if report.commands:
                report.count(filling.state)
            return filling.start, 0, False

    if dry_run:
        take(Keys(None, report))
        if report.commands:
            # Only a state tells what commands leave behind: they are replayed in a directory that goes again.
            report = Report()
            with TemporaryDirectory() as folder:
                fill(Path(folder))
    else:
        maker = Maker("import", "Import into it again", source, tidy=True)
        try:
            made = make(disk, maker, uuid, target, fill, now_ms)
        except CheckpointError as error:
            told = f"no space left on {target}; free some and run again"
            if not error.full:
                told = (
                    f"{target}: the data could not be written ({error.__cause__ or error}). Choose another "
                    "directory, or run the same command again"
                )
            raise Unable(told) from error
        facts |= {"uuid": uuid.hex(), "lsn": made.lsn}
    if as_json:
        console.json_object(facts | report.facts())
        return
    click.echo(
        f"{source} contains {report.line()}" if dry_run else f"{target} contains {report.line()}"
    )
    for note in report.notes():
        click.echo(note)
