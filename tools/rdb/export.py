"""`tidelog rdb export`: a store as a dump file, which carries what commands cannot say.

Pending entries of deleted messages, seen-times, entries-read, nodes with deleted entries, the order of released entries
and the dedup tables all survive, as far as the version of Redis has a place for them. The rest is listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tidelog.engine.commands.rewrite import Kind, Lost
from tidelog.engine.rdb.write import RdbTarget, rdb_file
from tidelog.tools import console
from tidelog.tools.aof.losses import as_objects, as_table, target_option
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.output import new_file
from tidelog.tools.text import path_value, size_text

ADVANCE_BYTES: Final = 1 << 20

# Kinds that a dump file loses in another way than commands do.
_TOLD: Final = {
    Kind.ACTIVE_TIME: "consumers whose active-time becomes their seen-time; Redis 7.0 has no active-time",
}


@tool_command(
    "tidelog rdb export orders-data dump.rdb",
    "tidelog rdb export orders-data dump.rdb --target 7.0",
    "tidelog rdb export orders-data dump.rdb --at-lsn 4711 --json",
)
@click.argument("path", type=STORE_PATH)
@click.argument("file", type=click.Path(path_type=Path))
@target_option(RdbTarget, RdbTarget.REDIS_8_8, "load the file; later ones load it too")
@at_options
@json_option()
def command(
    path: Path,
    file: Path,
    target: str,
    at_lsn: int | None,
    at_time: int | None,
    as_json: bool,
) -> None:
    lost = Lost()
    nbytes = 0
    files = LogFiles(path, snapshots=True)
    with contents_at(files, at_lsn, at_time) as found, new_file(file) as out:
        with console.progress("exporting", 0, size=True) as advance:
            told = 0
            for piece in rdb_file(found.state, lost, RdbTarget(target)):
                out.write(piece)
                nbytes += len(piece)
                if nbytes - told >= ADVANCE_BYTES:
                    advance(nbytes - told)
                    told = nbytes
        lsn = found.last_lsn
    if as_json:
        facts = {
            "path": path_value(file),
            "lsn": lsn,
            "target": target,
            "bytes": nbytes,
            "lost": as_objects(lost, _TOLD),
        }
        console.json_object(facts)
        return
    click.echo(
        f"{file}: everything through LSN {lsn}, {size_text(nbytes)}, for Redis {target} and later"
    )
    if lost:
        click.echo(as_table(lost, f"Redis {target} has no place for it", _TOLD), nl=False, err=True)
