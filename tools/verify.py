"""`tidelog verify`: check all files of a store, and that they belong together.

The exit code is the highest of the failed checks; those of the log are the codes of `tidelog aof verify`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.scrub import Finding, verify_snapshot, verify_store
from tidelog.store.directory import is_snapshot
from tidelog.tools import console, exits
from tidelog.tools.aof.verify import CHECKS as OF_THE_LOG
from tidelog.tools.aof.verify import table_of
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, place_of
from tidelog.tools.snapshot.facts import progress
from tidelog.tools.text import path_value

# By the exit code, the gravest last: the checks of the log, without its replay, and those of checkpoint and snapshots.
CHECKS: Final = dict(
    sorted(
        {
            **{check: code for check, code in OF_THE_LOG.items() if check != "replay"},
            "snapshot": exits.VERIFY_SNAPSHOT,  # a kept snapshot is damaged
            "checkpoint": exits.VERIFY_CHECKPOINT,  # rows of the checkpoint are damaged or missing
            "agreement": exits.VERIFY_AGREEMENT,  # log and checkpoint do not continue each other
        }.items(),
        key=lambda check: check[1],
    )
)


@tool_command(
    "tidelog verify orders-data; echo $?",
    "tidelog verify orders-data --snapshots --json | jq .findings",
    codes=(*exits.READING, exits.VERIFY_TAIL),
)
@click.argument("path", type=STORE_PATH)
@click.option("--snapshots", is_flag=True, help="Also check the snapshots that are kept.")
@json_option()
def command(path: Path, snapshots: bool, as_json: bool) -> int:
    disk = RealDisk()
    root = place_of(disk, path)
    if is_snapshot(disk, root):
        findings, made = verify_snapshot(disk, root, progress), {"snapshot"}
    else:
        findings = verify_store(disk, root, progress, with_snapshots=snapshots)
        made = set(CHECKS) if snapshots else set(CHECKS) - {"snapshot"}
    (show_json if as_json else show)(findings, made)
    return max((CHECKS[finding.check] for finding in findings), default=exits.OK)


def show(findings: list[Finding], made: set[str]) -> None:
    table_of(CHECKS, (finding.check for finding in findings), made)
    for finding in findings:
        click.echo(str(finding))


def show_json(findings: list[Finding], made: set[str]) -> None:
    found = [finding._asdict() | {"path": path_value(finding.path)} for finding in findings]
    console.json_object({"findings": found, "snapshots": "snapshot" in made})
