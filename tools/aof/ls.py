"""`tidelog aof ls`: one line per segment.

Names, sizes and headers tell all about a segment but the last: the header of the next one states where it ends. So the
time does not depend on the size of the log. Only a segment whose end no header states is read. `--scan` reads every
frame of all.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tidelog.aof import identity, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import Damage, DamagedFile, NewerFormat
from tidelog.aof.reading.reader import Scan, Segment
from tidelog.aof.reading.recovery import TORN
from tidelog.aof.reading.verdicts import Verdict
from tidelog.disk import recipe
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows.opened import open_copy
from tidelog.tools import console, exits
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, Header, LogFiles, hold, look_at
from tidelog.tools.text import size_text, time_text

HEAD: Final = ("SEGMENT", "FIRST", "LAST", "RECORDS", "BYTES", "FILE", "CREATED", "LIFE", "STATE")
SCANNED: Final = (
    *("SEGMENT", "FIRST", "LAST", "RECORDS", "FRAMES", "BYTES", "FILE", "CREATED", "LIFE", "END"),
)
RIGHT: Final = "FIRST LAST RECORDS FRAMES BYTES FILE"

# STATE of a segment
SEALED: Final = "sealed"  # ends where the next segment's header says
OPEN: Final = "open"  # the last one, to which a writer would append
# segments may follow that were not given, and the file does not tell
OPEN_OR_SEALED: Final = "open or sealed"
TORN_TAIL: Final = "torn"  # ends with an unfinished write
DAMAGED: Final = "damaged"  # promised records are missing from it
UNREADABLE: Final = "unreadable"  # its header is damaged, or it does not belong here

_QUARANTINED: Final = re.compile(rf"(\d{{20}})\.([0-9a-f]{{16}})\.(\d+)(\.\d+)?{re.escape(TORN)}")
_SET_ASIDE: Final = re.compile(r"(\d{20})\.([0-9a-f]{16})")
_SNAPSHOT: Final = re.compile(r"\d{20}")


class Row(NamedTuple):
    """The facts about one segment; the keys are those of the JSON form. A number is None if nothing states it."""

    facts: dict[str, Any]
    scan: Scan | None = None


class Mark(NamedTuple):
    """Something that stands at an LSN of the log: the checkpoint, DURABLE, a snapshot, quarantined bytes."""

    kind: str
    lsn: int
    name: str
    told: str


@tool_command(
    "tidelog aof ls orders-data",
    "tidelog aof ls orders-data --json | jq -r .segment",
    "tidelog aof ls orders-data --scan",
    "tidelog aof ls orders-data/aof/00000000000000000001.aof",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=STORE_PATH)
@json_option("Print one JSON object per line; sizes are in bytes.")
@click.option("--scan", is_flag=True, help="Read every frame, and count them.")
def command(paths: tuple[Path, ...], as_json: bool, scan: bool) -> int:
    files = look_at(paths)
    hold(files)
    promises, found = files.headers()
    rows = listed(files, promises, found, every=scan)
    troubles: list[Damage] = []
    first = files.missing_first(found)
    last = files.missing_last(promises, found, rows[-1].scan if rows else None)
    troubles += [error for error in (first, last) if error is not None]
    marks = [] if scan else marks_of(files, promises, rows)
    if as_json:
        for row in rows:
            facts = row.facts if scan else row.facts | {"marks": marks_in(row, marks)}
            console.json_object(facts)
    elif rows or not troubles:
        shown = [cells(row.facts, scanned=scan) for row in rows]
        console.table(SCANNED if scan else HEAD, shown, right=RIGHT)
        if not scan:
            show_notes(rows, marks)
    for error in troubles:
        click.echo(f"tidelog: {error}", err=True)
    damaged = any(row.facts["end"] in ("corrupt", UNREADABLE) for row in rows)
    return exits.DAMAGED if damaged or troubles else exits.OK


# --- the segments


def listed(
    files: LogFiles, promises: list[Promise], found: list[Header], *, every: bool
) -> list[Row]:
    """A row for each segment. `every`: read the frames of all of them."""
    rows: list[Row] = []
    with console.progress("reading", files.size() if every else 0, size=True) as advance:
        for at, header in enumerate(found):
            if header.fields is None or header.fault is not None:
                rows.append(unreadable(files, header, every))
                continue
            try:
                if every or header.end is None:
                    row = scanned(files, header, promises, last=at == len(found) - 1, every=every)
                else:
                    row = stated(files, header)
            except FileNotFoundError:
                continue  # the writer released the segment meanwhile
            rows.append(row)
            advance(row.facts["file_bytes"])
    return rows


def stated(files: LogFiles, header: Header) -> Row:
    """The facts that the header of the next segment states."""
    fields, end = header.fields, header.end
    assert fields is not None and end is not None
    size = recipe.size(files.disk, header.path)
    state, reason = SEALED, ""
    if end.offset > size:
        state = DAMAGED
        reason = f"the next segment says that this one has {end.offset} bytes, but it has {size}"
    elif end.lsn < fields.first_lsn - 1 or end.offset < segment.HEADER_BYTES:
        state = DAMAGED
        reason = f"the next segment says that this one ends with LSN {end.lsn} at byte {end.offset}"
    facts = facts_of(header, size, end.lsn, end.offset, None)
    ended = "end" if state == SEALED else "corrupt"
    return Row(facts | {"end": ended, "reason": reason, "state": state})


def scanned(
    files: LogFiles, header: Header, promises: list[Promise], *, last: bool, every: bool
) -> Row:
    """The facts after its frames were read."""
    assert header.fields is not None
    scan = Scan(files.disk, Segment(header.path, header.fields, header.end), promises, live=True)
    frames = sum(1 for _ in scan.tuples())
    assert scan.verdict is not None
    facts = facts_of(header, scan.size, scan.lsn - 1, scan.offset, frames)
    broken = scan.verdict in (Verdict.TORN, Verdict.CORRUPT)
    facts |= {"end": scan.verdict.value, "reason": scan.reason if broken else ""}
    if not every:
        states = {Verdict.TORN: TORN_TAIL, Verdict.CORRUPT: DAMAGED}
        whole = SEALED
        if last:  # a file has room behind its records only as long as a writer appends
            whole = OPEN if scan.size > scan.offset or not files.bare else OPEN_OR_SEALED
        facts |= {"state": states.get(scan.verdict, whole)}
    return Row(facts, scan)


def unreadable(files: LogFiles, header: Header, every: bool) -> Row:
    """The facts about a segment whose header cannot be read or does not belong here."""
    assert header.fault is not None
    try:
        size = recipe.size(files.disk, header.path)
    except OSError:
        size = 0
    last = None if header.end is None else header.end.lsn
    facts = facts_of(header, size, last, None, None)
    facts |= {"end": UNREADABLE, "reason": header.fault.reason}
    return Row(facts if every else facts | {"state": UNREADABLE})


def facts_of(
    header: Header, size: int, last_lsn: int | None, nbytes: int | None, frames: int | None
) -> dict[str, Any]:
    fields = header.fields
    roles = {segment.LEADER: "leader", segment.FOLLOWER: "follower"}
    return {
        "segment": header.path.name,
        "first_lsn": header.first_lsn,
        "last_lsn": last_lsn,
        "records": None if last_lsn is None else last_lsn - header.first_lsn + 1,
        "frames": frames,
        "bytes": nbytes,
        "file_bytes": size,
        "created_ms": None if fields is None else fields.time,
        "incarnation": None if fields is None else f"{fields.incarnation:016x}",
        "role": None if fields is None else roles.get(fields.role, "follower"),
    }


# --- marks


def marks_of(files: LogFiles, promises: list[Promise], rows: list[Row]) -> list[Mark]:
    """Where the checkpoint, snapshots and other files stand: from names, DURABLE, and one row of the checkpoint."""
    if files.snapshot is not None:
        return []
    marks: list[Mark] = []
    first = rows[0].facts["first_lsn"] if rows else 1
    if first > 1:
        marks.append(Mark("released", first - 1, "", f"LSN 1 to {first - 1} are in no segment"))
    if files.has_checkpoint:
        marks.append(checkpoint_mark(files))
    if promises:
        best = max(promises, key=lambda promise: promise.lsn)
        told = f"DURABLE promises LSN {best.lsn} of life {best.incarnation:016x}"
        marks.append(Mark("durable", best.lsn, f"{best.incarnation:016x}", told))
    for name in names_in(files, identity.SNAPSHOTS):
        if _SNAPSHOT.fullmatch(name):
            marks.append(Mark("snapshot", int(name), name, f"at LSN {int(name)}"))
    for name in names_in(files, identity.QUARANTINE):
        if (torn := _QUARANTINED.fullmatch(name)) is not None:
            lsn = behind(rows, int(torn[1]), torn[2])
            told = f"{name}: the bytes behind LSN {lsn - 1}"
            marks.append(Mark("quarantine", lsn, name, told))
        elif (aside := _SET_ASIDE.fullmatch(name)) is not None:
            told = f"{name}: records from LSN {int(aside[1])} on that a follower gave up"
            marks.append(Mark("quarantine", int(aside[1]), name, told))
    return marks


def checkpoint_mark(files: LogFiles) -> Mark:
    try:
        opened = open_copy(files.disk, files.checkpoint.parent)
    except (CheckpointError, DamagedFile, NewerFormat, OSError) as error:
        return Mark("checkpoint", 0, "unreadable", f"cannot be read: {error}")
    with closing(opened):
        lsn = opened.meta.position.lsn
        return Mark("checkpoint", lsn, "", f"holds everything through LSN {lsn}")


def names_in(files: LogFiles, folder: str) -> list[str]:
    directory = files.root / folder
    if not files.disk.exists(directory):
        return []
    return sorted(files.disk.listdir(directory))


def behind(rows: list[Row], first_lsn: int, incarnation: str) -> int:
    """The LSN at which the torn tail of a segment began."""
    for row in rows:
        facts = row.facts
        if (facts["first_lsn"], facts["incarnation"]) == (first_lsn, incarnation):
            return int(facts["last_lsn"] if facts["last_lsn"] is not None else first_lsn - 1) + 1
    return first_lsn


def marks_in(row: Row, marks: list[Mark]) -> list[dict[str, Any]]:
    """The marks of the records of one segment; of a mark before the first segment nothing is said."""
    first, last = row.facts["first_lsn"], row.facts["last_lsn"]
    return [
        {"kind": mark.kind, "lsn": mark.lsn, "name": mark.name}
        for mark in marks
        if first <= mark.lsn and (last is None or mark.lsn <= last)
    ]


# --- the form for people


def cells(row: dict[str, Any], *, scanned: bool) -> tuple[str, ...]:
    """The cells of a row; `scanned`: for the columns of --scan."""
    state = {"end": "clean"}.get(row["end"], row["end"]) if scanned else row["state"]
    if row["reason"]:
        at = "" if row["bytes"] is None else f" at byte {row['bytes']}"
        state = f"{state}{at}: {row['reason']}"
    created = row["created_ms"]
    return (
        row["segment"],
        str(row["first_lsn"]),
        number(row["last_lsn"]) if row["records"] else "-",
        number(row["records"]),
        *([number(row["frames"])] if scanned else []),
        "-" if row["bytes"] is None else size_text(row["bytes"]),
        size_text(row["file_bytes"]),
        "-" if created is None else time_text(created),
        row["incarnation"] or "-",
        state,
    )


def number(value: int | None) -> str:
    return "-" if value is None else str(value)


def show_notes(rows: list[Row], marks: list[Mark]) -> None:
    """Print the marks, each with the segment that holds its record, and the lives."""
    lives = Counter(row.facts["incarnation"] for row in rows if row.facts["incarnation"])
    if not marks and len(lives) < 2:
        return
    click.echo()
    for mark in marks:
        place = next((row.facts["segment"] for row in rows if marks_in(row, [mark])), None)
        click.echo(f"{mark.kind:<12} {mark.told}" + (f", in {place}" if place else ""))
    if len(lives) > 1:
        click.echo(f"{'lives':<12} {len(lives)} in these segments")
