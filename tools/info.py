"""`tidelog info`: show the contents of a store, from its checkpoint and a replay of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from tidelog.aof import epochs, identity
from tidelog.aof.bookmarks import bookmarks
from tidelog.aof.reading import recovery
from tidelog.disk import recipe
from tidelog.engine.keys.state import State
from tidelog.engine.streams.stream import Stream
from tidelog.store.keepers import keepers, pins
from tidelog.store.options import Options
from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.text import argument, json_value, path_value, size_text, time_text

KEEPERS: Final = {
    "snapshot": "the snapshot",
    "passing": "the snapshot for followers",
    "bookmark": "the bookmark",
}


@tool_command(
    "tidelog info orders-data",
    "tidelog info orders-data --json | jq .streams",
    "tidelog info orders-data/snapshots/00000000000000004711",
)
@click.argument("path", type=STORE_PATH)
@at_options
@json_option()
def command(path: Path, at_lsn: int | None, at_time: int | None, as_json: bool) -> None:
    files = LogFiles(path, snapshots=True)
    promises, segments = files.survey()
    marks, unusable = (
        bookmarks(files.disk, files.root, files.uuid) if files.snapshot is None else ([], [])
    )
    with contents_at(files, at_lsn, at_time) as found:
        state = found.state
        first_lsn = segments[0].header.first_lsn if segments else 1
        if files.snapshot is not None:
            first_lsn = found.last_lsn + 1
        facts: dict[str, Any] = {
            "path": path_value(path),
            "uuid": files.uuid.hex(),
            "format": identity.FORMAT,
            "segments": len(segments),
            "bytes": files.size(),
            "records": found.last_lsn - first_lsn + 1,
            "durable_lsn": max(found.folded_lsn, *(promise.lsn for promise in promises), 0),
            "generation": epochs.generation(state.epoch),
            "life": epochs.counter(state.epoch),
            "last_write_ms": found.now,
            "quarantined": quarantined(files),
            "bookmarks": dict(marks),
            "unusable_bookmarks": dict(unusable),
            "keys": {str(n): len(db.keys) for n, db in enumerate(state.databases) if db.keys},
            "streams": streams(state),
        }
        if files.snapshot is None:
            kept, _ = keepers(files.disk, files.root, files.uuid, Options())
            pinned = pins(files.disk, files.root, files.uuid, kept, found.folded_lsn)
            facts["log_pins"] = [pin.facts() for pin in pinned]
        if files.has_checkpoint:
            facts |= {
                "first_lsn": first_lsn,
                "checkpoint_bytes": recipe.size(files.disk, files.checkpoint),
            }
        if files.snapshot is not None:
            facts |= {"snapshot_lsn": files.snapshot.lsn}
        if as_json:
            rows = [as_object(row) for row in facts["streams"]]
            console.json_object(facts | {"streams": rows})
        else:
            show(facts)


def quarantined(files: LogFiles) -> int:
    """The number of torn tails that recoveries moved to quarantine/."""
    directory = files.root / identity.QUARANTINE
    names = files.disk.listdir(directory) if files.disk.exists(directory) else []
    return sum(name.endswith(recovery.TORN) for name in names)


def streams(state: State) -> list[tuple[int, bytes, Stream]]:
    """(database, key, stream) of every stream, in the order of the keys."""
    return [
        (number, key, value)
        for number, db in enumerate(state.databases)
        for key, value in sorted(db.keys.items())
        if isinstance(value, Stream)
    ]


def as_object(row: tuple[int, bytes, Stream]) -> dict[str, Any]:
    db, key, stream = row
    groups = {
        name.decode("utf-8", "backslashreplace"): {
            "consumers": len(group.consumers),
            "pending": len(group.pending),
        }
        for name, group in stream.groups.items()
    }
    return {"db": db, "key": json_value(key), "length": stream.length, "groups": groups}


def show(facts: dict[str, Any]) -> None:
    # fmt: off
    if "snapshot_lsn" in facts:
        click.echo(f"snapshot     of the store {facts['uuid']}, at LSN {facts['snapshot_lsn']:,}")
    else:
        click.echo(f"store        {facts['uuid']}, format {facts['format']}")
    if "checkpoint_bytes" in facts:
        alone = f", replaces LSN 1 to {facts['first_lsn'] - 1:,}" if facts["first_lsn"] > 1 else ""
        click.echo(f"checkpoint   {size_text(facts['checkpoint_bytes'])}{alone}")
    click.echo(f"log          {facts['records']:,} records in {facts['segments']} segments, "
               f"{size_text(facts['bytes'])}")
    click.echo(f"newest life  {facts['life']} of generation {facts['generation']}")
    click.echo(f"on the disk  at least up to LSN {facts['durable_lsn']}")
    click.echo(f"last write   {time_text(facts['last_write_ms']) if facts['last_write_ms'] else 'never'}")
    click.echo(f"quarantine   {facts['quarantined']} torn tails")
    # fmt: on
    for pin in facts.get("log_pins", ()):
        click.echo(
            f"kept by      {KEEPERS[pin['kind']]} {pin['name']}: {size_text(pin['bytes'])} of log, "
            f"since {time_text(pin['since'] * 1000)}"
        )
    for name, lsn in facts["bookmarks"].items():
        behind = facts["first_lsn"] > lsn + 1 if "first_lsn" in facts else False
        click.echo(
            f"bookmark     {name} at LSN {lsn:,}{', void: the log behind it is gone' if behind else ''}"
        )
    for name, why in facts["unusable_bookmarks"].items():
        click.echo(f"bookmark     {name} keeps no log: {why}")
    for number, count in facts["keys"].items():
        click.echo(f"database {number:<3} {count:,} keys")
    rows = [
        (
            str(db),
            argument(key),
            f"{stream.length:,}",
            str(len(stream.groups)),
            f"{sum(len(group.pending) for group in stream.groups.values()):,}",
        )
        for db, key, stream in facts["streams"]
    ]
    if rows:
        click.echo()
        console.table(
            ("DB", "STREAM", "LENGTH", "GROUPS", "PENDING"), rows, right="LENGTH GROUPS PENDING"
        )
