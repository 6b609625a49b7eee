"""`tidelog aof repair`: the command that errors name. It runs `tidelog repair` (tools/repair/) with `--cut`."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.tools.logfiles import STORE_PATH
from tidelog.tools.repair.command import repair
from tidelog.tools.text import examples


@click.command(
    help="Show what can be kept of a damaged log; write a repaired copy.",
    epilog=examples(
        "tidelog aof repair orders-data",
        "tidelog aof repair orders-data --to orders-repaired",
    ),
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="Write the repaired copy to this new directory.",
)
def command(path: Path, target: Path | None) -> int:
    return repair(path, target)
