"""`tidelog digest`: one number over the whole state of a store, as `db.digest()` computes it."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.engine.effects.digest import digest
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.replay import contents
from tidelog.tools.text import examples


@click.command(
    help="Print the digest of a store's whole state.",
    epilog=examples(
        "tidelog digest orders-data",
    ),
)
@click.argument("path", type=STORE_PATH)
def command(path: Path) -> None:
    with contents(LogFiles(path, snapshots=True)) as found:
        click.echo(digest(found.state))
