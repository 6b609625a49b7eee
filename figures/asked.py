"""Asked: figures out of the replies of a server, tidelog's or another Redis: XINFO, XPENDING and QUEUE STATS."""

from __future__ import annotations

from typing import Any, Final

from tidelog.figures.model import ConsumerFigures, GroupFigures, QueueFigures
from tidelog.figures.names import due_ms, has_due_times, is_helper

ALIVE_MS: Final = 600_000  # a worker that asked for jobs within this time is alive


def pairs(reply: list[Any]) -> dict[bytes, Any]:
    """A flat list of names and values as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def is_helper_told(key: bytes, first: Any, there: bool) -> bool:
    """Whether a stream is one that queues keep for themselves, by the `first-entry` of its XINFO STREAM.

    there    as for `is_helper`
    """
    return is_helper(key, first[1] if first else None, there)


def group_told(
    key: bytes,
    group: dict[bytes, Any],
    oldest: int | None,
    consumers: list[dict[bytes, Any]] | None = None,
) -> GroupFigures:
    """A group by its item of XINFO GROUPS, the time of its oldest delivery, and its XINFO CONSUMERS."""
    due = oldest is not None and has_due_times(key, group[b"name"])
    return GroupFigures(
        group[b"name"],
        group[b"last-delivered-id"].decode(),
        group.get(b"entries-read"),
        group.get(b"lag"),
        group[b"pending"],
        None if due else oldest,
        group[b"consumers"],
        due_ms(oldest) if due and oldest is not None else None,
        tuple(
            ConsumerFigures(one[b"name"], one[b"pending"], one[b"idle"]) for one in consumers or ()
        ),
    )


def queue_told(
    db: int, key: bytes, group: bytes, stats: dict[bytes, Any], at_ms: int
) -> QueueFigures:
    """A queue by its QUEUE STATS."""
    seconds = stats[b"oldest_seconds"]
    return QueueFigures(
        *(db, key, group, stats[b"depth"], stats[b"waiting"], sum(stats[b"in_flight"][1::2])),
        *(stats[b"paused"], stats[b"dead"]),
        None if seconds is None else at_ms - round(float(seconds) * 1000),
        *(stats[b"failures"], stats[b"scheduled"]),
    )
