"""Shared by the commands of `tidelog snapshot`: finding the store's snapshots, and describing a snapshot."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tidelog.aof import identity
from tidelog.aof.identity import SNAPSHOTS
from tidelog.disk.interface import Disk
from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.portable import Snapshot
from tidelog.tools import console
from tidelog.tools.logfiles import store_root
from tidelog.tools.text import json_value, path_value

NOTE_URL: Final = (
    "A snapshot is given as a path or as a URL, s3://bucket/path, with ?endpoint_override=HOST:PORT&scheme=http for a "
    "server of your own. Credentials come from the environment. Other schemes of pyarrow (gs, hdfs) are not tested. "
    "In a local folder, the name latest stands for the newest snapshot: orders-data/snapshots/latest."
)


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
    return manifest_facts(str(snapshot.path), snapshot.manifest)


def manifest_facts(name: str, manifest: Manifest) -> dict[str, Any]:
    """The snapshot with this path or URL in JSON, without its streams one by one."""
    counts = manifest.counts
    return {
        "path": path_value(name),
        "lsn": manifest.lsn,
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


def stream_facts(manifest: Manifest) -> list[dict[str, Any]]:
    """The largest streams of a snapshot in JSON, all that the manifest lists."""
    return [row._asdict() | {"key": json_value(row.key)} for row in manifest.counts.largest]
