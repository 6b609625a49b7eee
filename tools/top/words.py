"""The words of a look, for the screen and for `--once`: cells of tables and lines about the store."""

from __future__ import annotations

from typing import Any, Final

from tidelog.figures.model import GroupFigures, QueueFigures, StreamFigures
from tidelog.tools.queue_streams import due_in
from tidelog.tools.text import argument, json_value, place_text, size_text, span
from tidelog.tools.top.look import Look

UNKNOWN: Final = "?"
STOPPED: Final = " (paused)"  # behind the name of a queue that is paused
STREAM_HEAD: Final = ("STREAM", "LENGTH", "ADDED", "ADDED/S", "GROUPS", "LAG", "PENDING", "OLDEST")
GROUP_HEAD: Final = ("GROUP", "LAST", "READ", "READ/S", "LAG", "PENDING", "OLDEST", "CONSUMERS")
QUEUE_HEAD: Final = (
    *("QUEUE", "GROUP", "DEPTH", "WAITING", "IN-FLIGHT", "PAUSED", "SCHEDULED", "DEAD", "OLDEST"),
)


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.1f}"


def oldest(row: StreamFigures | GroupFigures, at_ms: int) -> str:
    """The age of the oldest delivery; of delayed jobs and schedules when the first is due."""
    if row.oldest_ms is not None or row.due_ms is None:
        return age(row.oldest_ms, at_ms)
    return due_in(row.due_ms, at_ms)


def age(ms: int | None, at_ms: int) -> str:
    """How long ago a moment is."""
    return "" if ms is None else span(at_ms - ms)


def stream_cells(row: StreamFigures, at_ms: int) -> tuple[str, ...]:
    return (
        place_text(row.db, row.key),
        count(row.length),
        count(row.added),
        rate(row.added_per_s),
        count(row.groups),
        count(row.lag),
        count(row.pending),
        oldest(row, at_ms),
    )


def group_cells(row: GroupFigures, at_ms: int) -> tuple[str, ...]:
    return (
        argument(row.name),
        row.last_id,
        count(row.read),
        rate(row.read_per_s),
        count(row.lag),
        count(row.pending),
        oldest(row, at_ms),
        count(row.consumers),
    )


def queue_cells(row: QueueFigures, at_ms: int) -> tuple[str, ...]:
    figures = map(
        count, (row.depth, row.waiting, row.in_flight, row.paused, row.scheduled or 0, row.dead)
    )
    return (
        place_text(row.db, row.key) + STOPPED * row.stopped,
        argument(row.group or b""),
        *figures,
        age(row.oldest_ms, at_ms),
    )


def fact_lines(look: Look) -> list[str]:
    """Two lines about log, checkpoint and process."""
    facts = look.facts
    last, durable, folded = (facts.get(f"{name}_lsn") for name in ("last", "durable", "checkpoint"))
    behind = None if last is None or folded is None else last - folded
    log = f"log {_size(facts.get('log_bytes'))}, LSN {count(last)}, on the disk up to {count(durable)}"
    checkpoint = f"checkpoint at LSN {count(folded)}, {count(behind)} records behind it"
    seconds = facts.get("exposed_s")
    exposed = f"exposed {_size(facts.get('exposed_bytes'))} for {UNKNOWN if seconds is None else f'{seconds:.1f}'} s"
    parts = [
        *([facts["version"]] if facts.get("version") else []),
        exposed,
        f"delayed fsyncs {count(facts.get('delayed_fsyncs'))}",
        f"clients {count(facts.get('clients'))}",
    ]
    if facts.get("commands_per_s") is not None:
        parts.append(f"{count(facts['commands_per_s'])} commands/s")
    return [f"{log}; {checkpoint}", "; ".join(parts)]


def _size(nbytes: int | None) -> str:
    return UNKNOWN if nbytes is None else size_text(nbytes)


# --- JSON: the figures by these names

# fmt: off
_STREAM: Final = (
    "db", "key", "length", "added", "added_per_s", "groups", "lag", "pending", "oldest_ms", "due_ms",
)
_GROUP: Final = (
    "name", "last_id", "read", "read_per_s", "lag", "pending", "oldest_ms", "consumers", "due_ms",
)
_QUEUE: Final = (
    "db", "key", "group", "depth", "waiting", "in_flight", "paused", "dead", "oldest_ms", "scheduled",
    "stopped_ms",
)
# fmt: on


def as_object(
    look: Look, groups: list[list[GroupFigures]], queues: list[QueueFigures]
) -> dict[str, Any]:
    """One look: facts, every stream with its groups, every queue."""
    return {
        "time_ms": look.at_ms,
        "facts": look.facts,
        "streams": [
            _some(row, _STREAM)
            | {"key": json_value(row.key), "groups": list(map(_group_object, of))}
            for row, of in zip(look.streams, groups, strict=True)
        ],
        "queues": [
            _some(row, _QUEUE)
            | {"key": json_value(row.key), "group": json_value(row.group or b"")}
            | {"scheduled": row.scheduled or 0}
            for row in queues
        ],
    }


def _group_object(row: GroupFigures) -> dict[str, Any]:
    consumers = [
        {"name": json_value(one.name), "pending": one.pending, "idle_ms": one.idle_ms}
        for one in row.members
    ]
    return _some(row, _GROUP) | {"name": json_value(row.name), "consumers": consumers}


def _some(row: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
