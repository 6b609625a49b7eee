"""`tidelog rdb import`: the same as `tidelog import` of a file."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.tools.importing.command import from_file, options, run
from tidelog.tools.importing.filters import filter_of
from tidelog.tools.text import examples


@click.command(
    help="Make a store of a dump file of Redis.",
    epilog=examples(
        "tidelog rdb import orders-data dump.rdb",
        "tidelog rdb import orders-data dump.rdb --key 'orders*' --dry-run",
    ),
)
@options
def command(
    target: Path,
    source: str,
    dbs: tuple[int, ...],
    globs: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    run(target, source, from_file(Path(source), filter_of(dbs, globs)), dry_run, as_json)
