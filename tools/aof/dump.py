"""`tidelog aof dump`: the records of the log as Redis commands.

A line is

    LSN  time  segment@offset  unit  [db]  command

`unit` shows the place of the record in its unit: `-` is the only record, `/` the first of several, `|` one in the
middle, `\\` the last. A record prints one line per command; a record without a command is printed as a comment.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgpack

from tidelog.aof.errors import Damage
from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.aof.reading.reader import unpacker
from tidelog.engine.effects.as_commands import commands, database
from tidelog.engine.effects.effect import EPOCH, OPCODE
from tidelog.resp.commands import encoded
from tidelog.tools import exits, names
from tidelog.tools.aof.backwards import frames_backwards
from tidelog.tools.aof.fields import fields_of
from tidelog.tools.aof.frames import past_damage_option, wanted_frames
from tidelog.tools.aof.records import FIRST, LAST, MIDDLE, ONLY, UNFIT, Record, unfit
from tidelog.tools.aof.wanted import Match, Wanted, id_range, logged_as, names_option, needles_of
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles, hold, look_at
from tidelog.tools.text import command_line, json_value, time_text
from tidelog.tools.times import moment, renamed

MARKS: Final = {ONLY: "-", FIRST: "/", MIDDLE: "|", LAST: "\\"}
# of the JSON and msgpack forms that --format names; raised when a field changes its meaning
VERSION: Final = 1

TEXT: Final = "text"
JSON: Final = "json"
RESP: Final = "resp"
MSGPACK: Final = "msgpack"
FORMATS: Final = (TEXT, JSON, RESP, MSGPACK)
HEX_BYTES: Final = 32  # in a line of --hex


@tool_command(
    "tidelog aof dump orders-data --key orders --count 3",
    "tidelog aof dump orders-data --command XACK --since 15m",
    "tidelog aof dump orders-data --key 'orders:*' --id 1700000000001-0 --unit",
    "tidelog aof dump orders-data --reverse --count 10",
    "tidelog aof dump orders-data --json --follow | jq -c .commands",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=STORE_PATH)
@names_option(
    "key",
    names.keys,
    "Print only records of this key, or of keys that match this glob; may be repeated.",
)
@click.option(
    "--command",
    "wanted_commands",
    multiple=True,
    help='Print only this command, such as "XADD" or "XGROUP SETID"; may be repeated.',
)
@names_option(
    "group",
    names.groups,
    "Print only records of this group, or of groups that match this glob; may be repeated.",
)
@names_option(
    "consumer",
    names.consumers,
    "Print only records that name this consumer, or match this glob; may be repeated.",
)
@click.option(
    "--id",
    "wanted_ids",
    metavar="ID|FROM..TO",
    callback=id_range,
    help="Print only records about entries with these IDs, also inside ID lists and batches.",
)
@click.option("--unit", "whole_units", is_flag=True, help="Print the whole unit of each hit.")
@click.option("--from-lsn", type=int, help="Start at this LSN.")
@click.option("--to-lsn", type=int, help="Stop after this LSN.")
@click.option(
    "--since", callback=moment, help="Start at this time (UTC), or at 15m for 15 minutes ago."
)
@click.option("--until", callback=moment, help="Stop after this time.")
@renamed(
    "--count",
    "limit",
    formerly=("--limit",),
    type=click.IntRange(1),
    help="Print at most this many records.",
)
@click.option("--reverse", is_flag=True, help="Print the newest record first.")
@click.option("--frames", "with_frames", is_flag=True, help="Print the header of each frame too.")
@click.option("--hex", "with_hex", is_flag=True, help="Print the bytes of each record too.")
@json_option("Print one JSON object per line and record.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Print text; JSON with a version and the fields of the record; RESP; or msgpack.",
)
@click.option("--follow", is_flag=True, help="Continue to print as the log grows, until Ctrl-C.")
@past_damage_option
def command(
    paths: tuple[Path, ...],
    wanted_key: Match | None,
    wanted_commands: tuple[str, ...],
    wanted_group: Match | None,
    wanted_consumer: Match | None,
    wanted_ids: tuple[int, int] | None,
    whole_units: bool,
    from_lsn: int | None,
    to_lsn: int | None,
    since: int | None,
    until: int | None,
    limit: int | None,
    reverse: bool,
    with_frames: bool,
    with_hex: bool,
    as_json: bool,
    form: str | None,
    follow: bool,
    past_damage: bool,
) -> int:
    if follow and past_damage:
        raise click.UsageError("--follow and --past-damage cannot be used together")
    if reverse and (follow or past_damage):
        raise click.UsageError("--reverse cannot be used with --follow or --past-damage")
    if as_json and form is not None:
        raise click.UsageError("--json and --format cannot be used together")
    if (with_frames or with_hex) and (as_json or form in (JSON, RESP, MSGPACK)):
        raise click.UsageError("--frames and --hex belong to the text form")
    wanted = Wanted(
        key=wanted_key,
        names=tuple(
            tuple(name.upper().encode(errors="surrogateescape").split()) for name in wanted_commands
        ),
        lsn_min=from_lsn or 0,
        lsn_max=math.inf if to_lsn is None else to_lsn,
        time_min=since or 0,
        time_max=math.inf if until is None else until,
        group=wanted_group,
        consumer=wanted_consumer,
        ids=wanted_ids,
        whole_units=whole_units,
        needles=needles_of(wanted_ids),
    )
    for told in logged_as(wanted.names):
        click.echo(f"tidelog: {told}", err=True)
    found: list[Damage] = []
    files = look_at(paths)
    if not follow:
        hold(files)
    if reverse:
        pairs = newest_first(files, wanted)
    else:
        pairs = read(files, wanted, found, follow=follow, past_damage=past_damage)
    before: Frame | None = None
    try:
        if form in (RESP, MSGPACK):
            encode = Resp().encoded if form == RESP else as_msgpack
            for path, frame, record in islice(pairs, limit):
                sys.stdout.buffer.write(encode(record))
                if follow:
                    sys.stdout.buffer.flush()
            return exits.DAMAGED if found else exits.OK
        show = as_object if as_json else as_full_object if form == JSON else as_lines
        for path, frame, record in islice(pairs, limit):
            if with_frames and frame is not before:
                sys.stdout.write(frame_line(record, frame))
                before = frame
            sys.stdout.write(show(record))
            if with_hex:
                sys.stdout.write(hex_lines(frame, record))
            if follow:
                sys.stdout.flush()
    except UNFIT as error:
        raise unfit(path, frame, error) from error
    return exits.DAMAGED if found else exits.OK


def read(
    files: LogFiles, wanted: Wanted, found: list[Damage], *, follow: bool, past_damage: bool
) -> Iterator[tuple[Path, Frame, Record]]:
    """Yield the wanted records. Skipped damage is added to `found` and printed to standard error."""
    frames = wanted_frames(files, wanted, found, follow=follow, past_damage=past_damage)
    for path, frame in frames:
        for record in wanted.records(path, frame):
            yield path, frame, record


def newest_first(files: LogFiles, wanted: Wanted) -> Iterator[tuple[Path, Frame, Record]]:
    """Yield the wanted records, the newest first."""
    for path, frame in frames_backwards(files):
        if not wanted.skips(frame):
            for record in reversed(list(wanted.records(path, frame))):
                yield path, frame, record
        elif wanted.begun(frame):
            return


def as_lines(record: Record) -> str:
    db = database(record.effect)
    head = (
        f"{record.lsn:>8}  {time_text(record.now)}  {record.segment}@{record.offset}  "
        f"{MARKS[record.unit]}  {'' if db is None else f'[{db}] '}"
    )
    lines = [command_line(command) for command in commands(record.effect)]
    return "".join(f"{head}{line}\n" for line in lines or [f"# {comment(record)}"])


def comment(record: Record) -> str:
    """The name and fields of a record that has no command."""
    if record.effect[0] & OPCODE == EPOCH:
        _, number, incarnation = record.effect
        return f"EPOCH {number} {incarnation:016x}"
    fields = record.effect[1 if database(record.effect) is None else 2 :]
    shown = [command_line([field]) if isinstance(field, bytes) else str(field) for field in fields]
    return " ".join([record.name, *shown])


def as_object(record: Record) -> str:
    found = facts(record) | {
        "db": database(record.effect),
        "commands": [[json_value(arg) for arg in c] for c in commands(record.effect)],
    }
    return json.dumps(found) + "\n"


def as_full_object(record: Record) -> str:
    """The JSON form with a version, the fields of the record by name, and its commands."""
    found = {"v": VERSION} | facts(record)
    found |= {
        "fields": {name: json_field(value) for name, value in fields_of(record.effect).items()},
        "commands": [[json_value(arg) for arg in c] for c in commands(record.effect)],
    }
    return json.dumps(found) + "\n"


def as_msgpack(record: Record) -> bytes:
    """One map for each record, with bytes as they are."""
    found = {"v": VERSION} | facts(record) | {"fields": fields_of(record.effect)}
    packed: bytes = msgpack.packb(found)
    return packed


def facts(record: Record) -> dict[str, Any]:
    return {
        "lsn": record.lsn,
        "time_ms": record.now,
        "segment": record.segment,
        "offset": record.offset,
        "unit": record.unit,
        "record": record.name,
    }


def json_field(value: Any) -> Any:
    if isinstance(value, bytes):
        return json_value(value)
    return [json_field(each) for each in value] if isinstance(value, list | tuple) else value


class Resp:
    """The commands as RESP, with a SELECT where the database changes."""

    def __init__(self) -> None:
        self._selected: int | None = None

    def encoded(self, record: Record) -> bytes:
        lines = commands(record.effect)
        db = database(record.effect)
        if lines and db is not None and db != self._selected:
            self._selected = db
            lines = [[b"SELECT", b"%d" % db], *lines]
        return b"".join(map(encoded, lines))


def frame_line(record: Record, frame: Frame) -> str:
    """The header of a frame, as a comment."""
    last = frame.lsn + frame.count - 1
    return (
        f"# frame {record.segment}@{frame.offset}: LSN {frame.lsn} to {last}, {len(frame.body)} bytes, "
        f"{time_text(frame.now)}, on the disk up to {frame.synced}, checksum {frame.crc:08x}\n"
    )


def hex_lines(frame: Frame, record: Record) -> str:
    """The bytes of one record, as comments: offset in the segment, then bytes."""
    unpack = unpacker()
    unpack.feed(frame.body)
    for _ in range(record.lsn - frame.lsn):
        unpack.skip()
    begin = unpack.tell()
    unpack.skip()
    data = frame.body[begin : unpack.tell()]
    place = frame.offset + HEADER_BYTES + begin
    return "".join(
        f"#   {place + at:08x}  {data[at : at + HEX_BYTES].hex(' ')}\n"
        for at in range(0, len(data), HEX_BYTES)
    )
