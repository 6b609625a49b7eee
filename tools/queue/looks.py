"""Looks at the queues of a store or a server, for `ls`, `stats` and `watch`: figures, rates between looks, JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

import tidelog
from tidelog.figures.model import QueueFigures
from tidelog.jobs.stats import WorkerStatus
from tidelog.tools.queue.store import AnyStore, looked, now_ns
from tidelog.tools.queue.value import one_line
from tidelog.tools.text import json_value
from tidelog.tools.top.words import STOPPED, queue_cells


class Look(NamedTuple):
    """The queues at one moment, unix ms."""

    at_ms: int
    rows: list[QueueFigures]


def look(store: AnyStore, only: tuple[str, str] | None = None, before: Look | None = None) -> Look:
    """The queues now, with the rates since `before`. `only`: (name, group) of the one to look at."""
    if before is not None and isinstance(store, tidelog.Store):  # a server is always current
        store.refresh()
    at_ms, rows = now_ns() // 1_000_000, looked(store, only)
    if before is not None:
        known = {row.name: row for row in before.rows}
        passed = max(at_ms - before.at_ms, 1) / 1000
        rows = [row.since(known[row.name], passed) if row.name in known else row for row in rows]
    return Look(at_ms, rows)


def workers_of(queue: Any) -> list[WorkerStatus]:
    """The workers of a group; none if the server is of version 0.1, which does not tell them."""
    try:
        found: list[WorkerStatus] = queue.workers()
    except tidelog.Unsupported:
        return []
    return found


def cells(row: QueueFigures, at_ms: int) -> tuple[str, ...]:
    """The columns of QUEUE_HEAD."""
    name = text(row.key) + STOPPED * row.stopped
    return name, text(row.group), *queue_cells(row, at_ms)[2:]


def text(name: bytes | None) -> str:
    """The name of a queue, a group or a worker, for people."""
    return one_line((name or b"").decode(errors="backslashreplace"))


def as_object(row: QueueFigures, at_ms: int) -> dict[str, Any]:
    """The figures of a queue for JSON, by the names that `queue.stats()` has."""
    return {
        "name": json_value(row.key),
        "group": json_value(row.group or b""),
        "depth": row.depth,
        "waiting": row.waiting,
        "in_flight": {name.decode(errors="backslashreplace"): jobs for name, jobs in row.held},
        "paused": row.paused,
        "scheduled": row.scheduled or 0,
        "dead": row.dead,
        "cancelled": row.cancelled,
        "hanging": row.hanging,
        "killed": row.killed,
        "failures": row.failures,
        "kept": row.kept,
        "oldest_seconds": oldest_s(row, at_ms),
        "put_per_second": row.put_per_s,
        "done_per_second": row.left_per_s,
        "by_priority": dict(row.by_priority),
        "stopped_ms": row.stopped_ms,
    }


def oldest_s(row: QueueFigures, at_ms: int) -> float | None:
    """The age of the oldest job that is not done."""
    return None if row.oldest_ms is None else max(0, at_ms - row.oldest_ms) / 1000
