"""`tidelog digest`: one number over the whole state of a store, as `db.digest()` computes it."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.engine.digest import digest
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.replay import replayed


@click.command(help="Print the digest of a store's whole state.")
@click.argument("path", type=click.Path(path_type=Path))
def command(path: Path) -> None:
    state, _ = replayed(LogFiles(path))
    click.echo(digest(state))
