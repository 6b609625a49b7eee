"""`tidelog digest`: one number over the whole state of a store, as `db.digest()` computes it."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.engine.effects.digest import digest
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.text import examples


@click.command(
    help="Print the digest of a store's whole state.",
    epilog=examples(
        "tidelog digest orders-data",
        "tidelog digest orders-data --at-lsn 4711",
    ),
)
@click.argument("path", type=STORE_PATH)
@at_options
def command(path: Path, at_lsn: int | None, at_time: int | None) -> None:
    with contents_at(LogFiles(path, snapshots=True), at_lsn, at_time) as found:
        click.echo(digest(found.state))
