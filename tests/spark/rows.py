"""Batch reads in this process, as Spark would run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelog.spark.source.batch.read import columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse


def rows(path: Path | str, **options: str) -> list[dict[str, Any]]:
    """The rows of a read, by its partitions and their batches."""
    parsed = parse({"path": str(path), **options})
    paths = resolve(parsed.paths, parsed.snapshot)
    planned = read(parsed, paths, columns_of(parsed, len(paths)))
    found: list[dict[str, Any]] = []
    for part in planned.parts():
        for batch in planned.batches(part):
            found += batch.to_pylist()
    return found
