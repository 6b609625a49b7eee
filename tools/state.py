"""`tidelog state`: the keys of a store as of any moment, in the words of XINFO and XPENDING."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import State
from tidelog.engine.streams.lag import lag
from tidelog.engine.streams.stream import Stream
from tidelog.figures.names import due_ms, has_due_times
from tidelog.figures.queues import of_queue
from tidelog.tools import console, names
from tidelog.tools.aof.wanted import Match, names_option
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.logfiles import STORE_PATH, LogFiles
from tidelog.tools.moment import at_options, contents_at
from tidelog.tools.queue_streams import due_in, queue_lines, queue_object
from tidelog.tools.text import argument, json_value, time_text

VERSION: Final = 1
VALUE_SHOWN: Final = 60  # bytes of a string in the form for people, without --full


@tool_command(
    "tidelog state orders-data --at-lsn 4711",
    "tidelog state orders-data --at-time 15m --key 'orders:*' --full",
    "tidelog state orders-data --json | jq 'select(.type == \"stream\") | .groups'",
)
@click.argument("path", type=STORE_PATH)
@at_options
@names_option(
    "key",
    names.keys,
    "Show only this key, or keys that match this glob; may be repeated.",
)
@click.option("--full", is_flag=True, help="Show every entry and pending entry, and whole strings.")
@json_option("Print one JSON object per line and key.")
def command(
    path: Path,
    at_lsn: int | None,
    at_time: int | None,
    wanted_key: Match | None,
    full: bool,
    as_json: bool,
) -> None:
    files = LogFiles(path, snapshots=True)
    with contents_at(files, at_lsn, at_time) as found:
        if not as_json:
            when = time_text(found.now) if found.now else "never"
            click.echo(f"state at LSN {found.last_lsn:,}, last write {when}")
        for db, key, value, expire_at in keys_of(found.state, wanted_key):
            queue = []
            if isinstance(value, Stream):
                queue = of_queue(found.state, db, key, found.now)
            if as_json:
                head = {"v": VERSION, "lsn": found.last_lsn, "time_ms": found.now}
                facts = head | key_facts(db, key, value, expire_at, full)
                console.json_object(facts | {"queue": queue_object(queue)} if queue else facts)
            else:
                for line in key_lines(db, key, value, expire_at, full, found.now):
                    click.echo(line)
                for line in queue_lines(queue) if queue else ():
                    click.echo(line)


def keys_of(state: State, wanted: Match | None) -> Iterator[tuple[int, bytes, Stream | bytes, int]]:
    """(database, key, value, expiry) of the wanted keys. Leaves cold rows cold."""
    for number, database in enumerate(state.databases):
        for key in sorted(database.keys):
            if wanted is None or wanted(key):
                value, expire_at = database.keys.look(key)
                yield number, key, value, expire_at


# --- JSON


def key_facts(
    db: int, key: bytes, value: Stream | bytes, expire_at: int, full: bool
) -> dict[str, Any]:
    facts = {
        "db": db,
        "key": json_value(key),
        "expires_ms": None if expire_at == NO_EXPIRY else expire_at,
    }
    if isinstance(value, bytes):
        return facts | {"type": "string", "value": json_value(bytes(value))}
    return facts | {"type": "stream"} | stream_facts(key, value, full)


def stream_facts(key: bytes, stream: Stream, full: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "length": stream.length,
        "first_id": id_text(stream.first_id()),
        "last_id": id_text(stream.last_id),
        "max_deleted_id": id_text(stream.max_deleted_id),
        "entries_added": stream.entries_added,
        "nodes": stream.nodes(),
        "groups": [
            group_facts(key, stream, stream.groups[name], full) for name in sorted(stream.groups)
        ],
    }
    if stream.idmp is not None:
        idmp = stream.idmp
        facts["idempotency"] = {
            "duration_s": idmp.duration,
            "maxsize": idmp.maxsize,
            "added": idmp.added,
            "duplicates": idmp.duplicates,
            "ids": sum(1 for _ in idmp.records()),
        }
    if full:
        facts["entries"] = [
            [id_text(entry_id), [json_value(field) for field in row]]
            for entry_id, row in entries(stream)
        ]
    return facts


def group_facts(key: bytes, stream: Stream, group: Group, full: bool) -> dict[str, Any]:
    behind = lag(stream, group)
    facts: dict[str, Any] = {
        "group": json_value(group.name),
        "last_id": id_text(group.last_id),
        "entries_read": None if group.entries_read == UNKNOWN else group.entries_read,
        "lag": behind,
        "pending": len(group.pending),
        "released": group.pending.nacked(),
        "consumers": [
            {
                "consumer": json_value(consumer.name),
                "seen_ms": consumer.seen_time,
                "active_ms": None if consumer.active_time < 0 else consumer.active_time,
                "pending": group.pending.held_by(consumer.index),
            }
            for consumer in group.listed()
        ],
    }
    due = has_due_times(key, group.name)
    if full:
        facts["pending_entries"] = [
            {
                "id": id_text(entry_id),
                "consumer": json_value(group.owner_name(owner)),
                **({"due_ms": due_ms(time)} if due else {"delivered_ms": time}),
                "count": count,
            }
            for entry_id, time, owner, count in group.pending.entries()
        ]
    return facts


def entries(stream: Stream) -> Iterator[tuple[int, tuple[bytes, ...]]]:
    """(ID, row) of every entry, one node in memory at a time."""
    for node in stream.walk():
        ids, rows = node.ids(), node.rows()
        for slot in node.live_slots():
            yield ids[slot], tuple(rows[slot])


def id_text(entry_id: int) -> str:
    return f"{entry_id >> 64}-{entry_id & (1 << 64) - 1}"


# --- the form for people


def key_lines(
    db: int, key: bytes, value: Stream | bytes, expire_at: int, full: bool, now: int
) -> Iterator[str]:
    expires = "" if expire_at == NO_EXPIRY else f", expires {time_text(expire_at)}"
    head = f"[{db}] {argument(key)}"
    if isinstance(value, bytes):
        shown = bytes(value) if full else bytes(value[:VALUE_SHOWN])
        more = "" if len(shown) == len(value) else f"... ({len(value):,} bytes)"
        yield f"{head}: string {argument(shown)}{more}{expires}"
        return
    added, last = f"{value.entries_added:,}", id_text(value.last_id)
    yield (
        f"{head}: stream of {value.length:,} entries, first {id_text(value.first_id())}, last {last}, "
        f"{added} added, max deleted {id_text(value.max_deleted_id)}{expires}"
    )
    if full:
        for entry_id, row in entries(value):
            yield f"    {id_text(entry_id)} {' '.join(map(argument, row))}"
    for name in sorted(value.groups):
        yield from group_lines(key, value, value.groups[name], full, now)


def group_lines(key: bytes, stream: Stream, group: Group, full: bool, now: int) -> Iterator[str]:
    behind = lag(stream, group)
    read = "unknown" if group.entries_read == UNKNOWN else f"{group.entries_read:,}"
    yield (
        f"  group {argument(group.name)}: last {id_text(group.last_id)}, read {read}, "
        f"lag {'unknown' if behind is None else f'{behind:,}'}, pending {len(group.pending):,}"
    )
    for consumer in group.listed():
        active = "never" if consumer.active_time < 0 else time_text(consumer.active_time)
        held = group.pending.held_by(consumer.index)
        yield (
            f"    consumer {argument(consumer.name)}: pending {held:,}, "
            f"seen {time_text(consumer.seen_time)}, active {active}"
        )
    if full and has_due_times(key, group.name):
        for entry_id, time, _, _ in group.pending.entries():
            due = due_ms(time)
            yield f"    pending {id_text(entry_id)}: {due_in(due, now)}, {time_text(due)}"
    elif full:
        for entry_id, time, owner, count in group.pending.entries():
            holder = argument(group.owner_name(owner)) if owner else "nobody"
            yield f"    pending {id_text(entry_id)}: {holder}, {time_text(time)}, delivery {count}"
