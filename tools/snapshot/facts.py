"""Shared by the commands of `tidelog snapshot`: finding the store's snapshots, and describing a snapshot."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import click

from tidelog.aof import identity
from tidelog.aof.identity import SNAPSHOTS
from tidelog.disk.interface import Disk
from tidelog.snapshot.portable import Snapshot
from tidelog.tools import console
from tidelog.tools.logfiles import store_root
from tidelog.tools.text import json_value

# `readable=False`: click must not check readability, because the command does so with exit codes of its own.
SNAPSHOT_PATH: Final = click.Path(path_type=Path, readable=False)


def snapshots_of(disk: Disk, path: Path) -> Path:
    """The folder of the snapshots of the store in `path`. Raises NotAStore, DamagedFile, NewerFormat, OSError."""
    root = store_root(disk, path)
    identity.read(disk, root)
    return root / SNAPSHOTS


def progress(what: str, nbytes: int) -> AbstractContextManager[console.Advance]:
    """A progress bar over bytes."""
    return console.progress(what, nbytes, size=True)


def facts(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot in JSON, without its streams one by one."""
    manifest = snapshot.manifest
    counts = manifest.counts
    return {
        "path": str(snapshot.path),
        "lsn": snapshot.lsn,
        "uuid": manifest.uuid.hex(),
        "last_write_ms": manifest.now_ms,
        "created_ms": manifest.created_ms,
        "bytes": manifest.data_bytes,
        "blake2b": manifest.blake2b,
        "lives": len(manifest.epochs),
        "keys": {str(row.db): row.keys for row in counts.databases},
        "streams": counts.streams,
        "entries": counts.entries,
        "groups": counts.groups,
        "pending": counts.pending,
    }


def stream_facts(snapshot: Snapshot, count: int | None) -> list[dict[str, Any]]:
    """The largest streams of a snapshot in JSON, `count` of them, or all that the manifest lists."""
    return [
        row._asdict() | {"key": json_value(row.key)}
        for row in snapshot.manifest.counts.largest[:count]
    ]
