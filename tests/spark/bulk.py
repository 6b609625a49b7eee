"""Stores with a snapshot of long streams, made in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tidelog

BATCH = 1_000
BY_HAND: dict[str, Any] = {"fsync": "no", "save": (), "checkpoint_bytes": 0}


def name_of(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number:06d}"


def store(directory: Path, streams: int, each: int) -> Path:
    """A store with a snapshot: `streams` streams of `each` entries."""
    path = directory / "store"
    with tidelog.open(path, **BY_HAND) as db:
        for number in range(streams):
            add(db, number, each)
        db.snapshot()
    return path


def add(db: Any, number: int, count: int) -> None:
    """Add entries of three fields, with about 70 bytes of values, to a stream."""
    rows = [
        {"user": f"{at:06d}", "payload": f"{at * 7919:032x}", "tag": f"{at * 104729:030x}"}
        for at in range(BATCH)
    ]
    for start in range(0, count, BATCH):
        db.xadd_many(name_of(number), rows[: count - start])
