"""Removes old segments once a checkpoint holds their records."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.aof.reading.reader import segment_paths
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

KEEP_BYTES: Final = 64 << 20


def release(
    disk: Disk, directory: Path, keep_from_lsn: int, keep_bytes: int = KEEP_BYTES
) -> list[Path]:
    """Remove the segments in `directory` that are no longer needed. Returns them, oldest first.

    keep_from_lsn   the lowest LSN that the checkpoint, the snapshots and the followers have durably reached:
                    segments that end at or before it may be removed
    keep_bytes      keep the newest segments, until together they have this many bytes; the last one always stays

    Runs beside the log's writer, without its lock. Each removal is durable before the next begins, so the
    remaining segments never have a gap. Raises OSError; segments removed before the error stay removed.
    """
    paths = segment_paths(disk, directory)
    gone: list[Path] = []
    for path in paths[: _old(disk, paths, keep_bytes)]:
        next_path = paths[len(gone) + 1]
        if int(next_path.stem) > keep_from_lsn + 1:
            break
        recipe.remove(disk, path)
        gone.append(path)
    return gone


def _old(disk: Disk, paths: list[Path], keep_bytes: int) -> int:
    """The number of oldest segments that are followed by at least `keep_bytes`."""
    nbytes = 0
    for number in range(len(paths) - 1, 0, -1):
        nbytes += recipe.size(disk, paths[number])
        if nbytes >= keep_bytes:
            return number
    return 0
