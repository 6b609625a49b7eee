"""`tidelog cat`: the entries of one stream, or one string, as text, JSON or CSV.

A key is read in pieces of BATCH entries, so memory does not grow with the stream. CSV has one column for each field
name of the printed entries; the command reads the entries once more for them.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from tidelog.engine.ids import MAX
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import State
from tidelog.engine.streams import reading
from tidelog.engine.streams.stream import Stream
from tidelog.tools import console, names
from tidelog.tools.aof.wanted import id_range
from tidelog.tools.failed import NotThere, Refused
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.state import id_text
from tidelog.tools.text import argument, json_value

BATCH: Final = 1000  # entries that are decoded at a time
COLUMNS_MAX: Final = 1000  # of CSV; a stream with more field names is no table
NEAR_MAX: Final = 10_000  # keys among which a similar one is looked for

Row = tuple[bytes, ...]  # name, value, name, value


class Range(NamedTuple):
    """The entries to print: from one ID to another, both included, and at most `limit` of them (None: all)."""

    first: int
    last: int
    limit: int | None
    reverse: bool


@tool_command(
    "tidelog cat orders-data orders --count 10 --reverse",
    "tidelog cat orders-data orders --json | jq -r .fields.item",
    "tidelog cat orders-data/snapshots/latest orders --csv | head -3",
    "tidelog cat orders-data session --raw | wc -c",
)
@click.argument("path", type=STORE_PATH)
@click.argument("key", shell_complete=names.keys)
@click.option(
    "--db", type=click.IntRange(0), default=0, show_default=True, help="The database of the key."
)
@at_options
@click.option(
    "--id",
    "ids",
    callback=id_range,
    metavar="ID|FROM..TO",
    help="Print only the entry with this ID, or a range FROM..TO.",
)
@click.option("--count", type=click.IntRange(1), help="Print at most this many entries.")
@click.option("--reverse", is_flag=True, help="Print the newest entry first.")
@json_option("Print one JSON object per entry and line.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print CSV with a column for each name of a field."
)
@click.option("--raw", is_flag=True, help="Print the bytes of a string as they are.")
def command(
    path: Path,
    key: str,
    db: int,
    at_lsn: int | None,
    at_time: int | None,
    ids: tuple[int, int] | None,
    count: int | None,
    reverse: bool,
    as_json: bool,
    as_csv: bool,
    raw: bool,
) -> None:
    if as_json + as_csv + raw > 1:
        raise click.UsageError("give one of --json, --csv and --raw")
    name = key.encode("utf-8", "surrogateescape")
    with contents_at(LogFiles(path, snapshots=True), at_lsn, at_time) as found:
        value, expire_at = look(found.state, path, db, name)
        if isinstance(value, bytes):
            if ids is not None or count is not None or reverse:
                raise click.UsageError(
                    "--id, --count and --reverse belong to streams; this is a string"
                )
            print_string(bytes(value), expire_at, as_json=as_json, as_csv=as_csv, raw=raw)
            return
        if raw:
            raise click.UsageError("--raw belongs to strings; this is a stream")
        wanted = Range(*(ids or (0, MAX)), count, reverse)
        if as_csv:
            print_csv(value, wanted)
            return
        for entry_id, row in entries(value, wanted):
            if as_json:
                console.json_object(as_object(entry_id, row))
            else:
                click.echo(f"{id_text(entry_id)}  {' '.join(map(argument, row))}")


def look(state: State, path: Path, db: int, key: bytes) -> tuple[Stream | bytes, int]:
    """(value, expiry) of a key. Raises NotThere, which names the databases that have it, or similar keys."""
    keys = state.databases[db].keys if db < len(state.databases) else {}
    if key in keys:
        return state.databases[db].keys.look(key)
    text = f"there is no key {argument(key)} in database {db} of {path}"
    elsewhere = [n for n, other in enumerate(state.databases) if key in other.keys]
    if elsewhere:
        raise NotThere(f"{text}; it is in database {', '.join(map(str, elsewhere))}: --db N")
    shown = {argument(each) for each in islice(keys, NEAR_MAX)}
    alike = get_close_matches(argument(key), shown)
    raise NotThere(f"{text}. Did you mean {', '.join(alike)}?" if alike else text)


def entries(stream: Stream, wanted: Range) -> Iterator[tuple[int, Row]]:
    """(ID, fields and values) of the wanted entries, BATCH of them in memory. May raise CorruptBlock."""
    first, last, left = wanted.first, wanted.last, wanted.limit
    while first <= last and left != 0:
        batch = BATCH if left is None else min(BATCH, left)
        found = reading.between(stream, first, last, batch, wanted.reverse)
        for entry_id, row in found:
            assert row is not None, "a range has live entries only"
            yield entry_id, tuple(row)
        if len(found) < batch:
            return
        if left is not None:
            left -= batch
        if wanted.reverse:
            last = entry_id - 1
        else:
            first = entry_id + 1


def as_object(entry_id: int, row: Row) -> dict[str, Any]:
    """An entry in JSON. `fields` is null if an object cannot hold it; then `row` has names and values in turn."""
    shown = [json_value(item) for item in row]
    told = {"id": id_text(entry_id), "time_ms": entry_id >> 64}
    fields, values = shown[::2], shown[1::2]
    if len(set(row[::2])) == len(fields) and all(isinstance(name, str) for name in fields):
        return told | {"fields": dict(zip(fields, values, strict=True))}
    return told | {"fields": None, "row": shown}


def print_csv(stream: Stream, wanted: Range) -> None:
    """Write the entries as CSV (RFC 4180), with their bytes as they are. Raises Refused before the first line."""
    columns: dict[bytes, int] = {}
    for entry_id, row in entries(stream, wanted):
        fields = row[::2]
        if len(set(fields)) < len(fields):
            raise Refused(f"the entry {id_text(entry_id)} has a field twice; print it with --json")
        for field in fields:
            columns.setdefault(field, len(columns))
        if len(columns) > COLUMNS_MAX:
            raise Refused(
                f"the entries have more than {COLUMNS_MAX:,} different fields; print them with --json"
            )
    # A field may be called like the first column.
    line([b"id", *columns])
    for entry_id, row in entries(stream, wanted):
        cells = [b""] * len(columns)
        for at in range(0, len(row), 2):
            cells[columns[row[at]]] = row[at + 1]
        line([id_text(entry_id).encode(), *cells])


def line(cells: list[bytes]) -> None:
    """Write one line of CSV."""
    text = io.StringIO(newline="")
    csv.writer(text).writerow([cell.decode("utf-8", "surrogateescape") for cell in cells])
    sys.stdout.buffer.write(text.getvalue().encode("utf-8", "surrogateescape"))


def print_string(value: bytes, expire_at: int, *, as_json: bool, as_csv: bool, raw: bool) -> None:
    if raw:
        sys.stdout.buffer.write(value)
    elif as_csv:
        line([b"value"])
        line([value])
    elif as_json:
        expires = None if expire_at == NO_EXPIRY else expire_at
        console.json_object({"value": json_value(value), "expires_ms": expires})
    else:
        click.echo(argument(value))
