"""`tidelog aof ls`: one line per segment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tidelog.aof import segment
from tidelog.aof.reading.reader import Scan
from tidelog.aof.reading.verdicts import Verdict
from tidelog.tools import console, exits
from tidelog.tools.logfiles import STORE_PATH, LogFiles, say_if_snapshot
from tidelog.tools.text import examples, size_text, time_text

HEAD = ("SEGMENT", "FIRST", "LAST", "RECORDS", "FRAMES", "BYTES", "FILE", "CREATED", "LIFE", "END")


@click.command(
    help="List the segments of the log.",
    epilog=examples(
        "tidelog aof ls orders-data",
        "tidelog aof ls orders-data --json | jq -r .segment",
    ),
)
@click.argument("path", type=STORE_PATH)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line; sizes are in bytes."
)
def command(path: Path, as_json: bool) -> int:
    files = LogFiles(path, snapshots=True, surpluses=True)
    say_if_snapshot(files)
    damaged = False
    rows: list[dict[str, Any]] = []
    with console.progress("reading", files.size(), size=True) as advance:
        for scan in files.scans():
            frames = sum(1 for _ in scan.tuples())
            damaged |= scan.verdict is Verdict.CORRUPT
            rows.append(facts(scan, frames))
            advance(scan.size)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
    else:
        console.table(
            HEAD, [shown(row) for row in rows], right="FIRST LAST RECORDS FRAMES BYTES FILE"
        )
    return exits.DAMAGED if damaged else exits.OK


def facts(scan: Scan, frames: int) -> dict[str, Any]:
    """The facts about a segment whose frames were read."""
    assert scan.verdict is not None
    return {
        "segment": scan.path.name,
        "first_lsn": scan.header.first_lsn,
        "last_lsn": scan.lsn - 1,
        "records": scan.lsn - scan.header.first_lsn,
        "frames": frames,
        "bytes": scan.offset,
        "file_bytes": scan.size,
        "created_ms": scan.header.time,
        "incarnation": f"{scan.header.incarnation:016x}",
        "role": "leader" if scan.header.role == segment.LEADER else "follower",
        "end": scan.verdict.value,
        "reason": scan.reason if scan.verdict in (Verdict.TORN, Verdict.CORRUPT) else "",
    }


def shown(row: dict[str, Any]) -> tuple[str, ...]:
    """A row for people."""
    end = {"end": "clean"}.get(row["end"], f"{row['end']} at byte {row['bytes']}: {row['reason']}")
    return (
        row["segment"],
        str(row["first_lsn"]),
        str(row["last_lsn"]) if row["records"] else "-",
        str(row["records"]),
        str(row["frames"]),
        size_text(row["bytes"]),
        size_text(row["file_bytes"]),
        time_text(row["created_ms"]),
        row["incarnation"],
        end,
    )
