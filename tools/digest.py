"""`tidelog digest`: one number over the whole state of a store, as `db.digest()` computes it."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.engine.effects.digest import digest
from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at


@tool_command(
    "tidelog digest orders-data",
    "tidelog digest orders-data --at-lsn 4711",
    "tidelog digest orders-data --json | jq .lsn",
)
@click.argument("path", type=STORE_PATH)
@at_options
@json_option("Print one JSON object, with the LSN.")
def command(path: Path, at_lsn: int | None, at_time: int | None, as_json: bool) -> None:
    with contents_at(LogFiles(path, snapshots=True), at_lsn, at_time) as found:
        number = digest(found.state)
        facts = {"lsn": found.last_lsn, "time_ms": found.now, "digest": number}
        console.told(as_json, facts, number)
