"""Batch reads in this process, as Spark would run them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.spark.source.batch.read import Read, columns_by, columns_of, read
from tidelog.spark.source.batch.snapshots import resolve
from tidelog.spark.source.options import parse


def rows(path: Path | str, **options: str) -> list[dict[str, Any]]:
    """The rows of a read, by its partitions and their batches."""
    parsed = parse({"path": str(path), **options})
    paths = resolve(parsed.paths, parsed.snapshot)
    return _rows_of(read(parsed, paths, columns_of(parsed, len(paths))))


def typed_rows(
    path: Path | str, schema: Mapping[str, pa.DataType], **options: str
) -> list[dict[str, Any]]:
    """The rows of a read with a schema of the user's."""
    parsed = parse({"path": str(path), **options})
    paths = resolve(parsed.paths, parsed.snapshot)
    return _rows_of(read(parsed, paths, columns_by(parsed, schema)))


def _rows_of(planned: Read) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in planned.parts():
        for batch in planned.batches(part):
            found += batch.to_pylist()
    return found
