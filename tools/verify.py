"""`tidelog verify`: check all files of a store, and that they belong together.

The exit code is the highest of the failed checks; those of the log are the codes of `tidelog aof verify`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from tidelog.disk.real import RealDisk
from tidelog.snapshot.scrub import Finding, verify_snapshot, verify_store
from tidelog.store.directory import is_snapshot
from tidelog.tools import console, exits
from tidelog.tools.heads import tool_command
from tidelog.tools.logfiles import STORE_PATH, place_of
from tidelog.tools.snapshot.facts import progress
from tidelog.tools.text import path_value

# fmt: off
CHECKS: Final = {
    # name         exit code              what it means when it fails
    "tail":       exits.VERIFY_TAIL,     # a torn tail, as after a crash; no promised record is missing
    "durable":    exits.VERIFY_DURABLE,  # DURABLE is unreadable, so less can be proved; no data is missing
    "time":       exits.VERIFY_TIME,     # a frame is older than the one before it
    "records":    exits.VERIFY_RECORDS,  # a record is not an effect that this version knows
    "blocks":     exits.VERIFY_BLOCKS,   # sealed entries in a record do not match their checksum
    "frames":     exits.VERIFY_FRAMES,   # a frame that was promised is damaged
    "segments":   exits.VERIFY_SEGMENTS, # records are missing before, between or after segments
    "headers":    exits.VERIFY_HEADERS,  # a segment's header is damaged, or the segment is another store's
    "identity":   exits.VERIFY_IDENTITY, # the file STORE is damaged
    "snapshot":   exits.VERIFY_SNAPSHOT, # a kept snapshot is damaged
    "checkpoint": exits.VERIFY_CHECKPOINT, # rows of the checkpoint are damaged or missing
    "agreement":  exits.VERIFY_AGREEMENT, # log and checkpoint do not continue each other
    "files":      exits.VERIFY_FILES,    # a file has the wrong kind, so the store does not open
}
# fmt: on


@tool_command(
    "tidelog verify orders-data; echo $?",
    "tidelog verify orders-data --snapshots --json | jq .findings",
    codes=(*exits.READING, exits.VERIFY_TAIL),
)
@click.argument("path", type=STORE_PATH)
@click.option("--snapshots", is_flag=True, help="Also check the snapshots that are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    rows = []
    for check in reversed(CHECKS):
        count = sum(finding.check == check for finding in findings)
        result = "FAILED" if count else "ok" if check in made else "left out"
        rows.append((check, result, str(count or "")))
    console.table(("CHECK", "RESULT", "FINDINGS"), rows, right="FINDINGS")
    for finding in findings:
        click.echo(str(finding))


def show_json(findings: list[Finding], made: set[str]) -> None:
    found = [finding._asdict() | {"path": path_value(finding.path)} for finding in findings]
    click.echo(json.dumps({"findings": found, "snapshots": "snapshot" in made}))
