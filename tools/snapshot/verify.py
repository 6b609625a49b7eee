"""`tidelog snapshot verify`: check that a snapshot is unchanged since it was published."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.scrub import verify_snapshot
from tidelog.tools import exits
from tidelog.tools.snapshot.facts import SNAPSHOT_PATH, progress
from tidelog.tools.text import examples


@click.command(
    help="Check every byte, row and count of a snapshot.",
    epilog=examples(
        "tidelog snapshot verify orders-data/snapshots/00000000000000004711; echo $?",
    ),
)
@click.argument("snapshot", type=SNAPSHOT_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(snapshot: Path, as_json: bool) -> int:
    findings = verify_snapshot(RealDisk(), snapshot, progress)
    if as_json:
        texts = [finding.text for finding in findings]
        click.echo(json.dumps({"path": str(snapshot), "findings": texts}))
    else:
        for finding in findings:
            click.echo(finding.text)
        if not findings:
            click.echo(f"{snapshot}: every byte, row and count is as it was published")
    return exits.DAMAGED if findings else exits.OK
