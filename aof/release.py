"""Letting go of old segments, once a checkpoint holds what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.aof.reader import segment_paths
from tidelog.disk import recipe
from tidelog.disk.interface import Disk

KEEP_BYTES: Final = 64 << 20


def release(
    disk: Disk, directory: Path, keep_from_lsn: int, keep_bytes: int = KEEP_BYTES
) -> list[Path]:
    """Remove the segments in `directory` that nobody needs any more. Returns them, oldest first.

    keep_from_lsn   the least LSN that checkpoint, snapshots and followers have reached, all of them on the
                    disk: segments that end at or before it may go
    keep_bytes      the newest segments that have so many bytes together stay; the last one always does

    Beside the log's writer, without its lock. Each removal is durable before the next begins, so at every
    moment what is left is the log's end without a gap. Raises OSError; those removed by then are gone.
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
    """How many segments at the front have `keep_bytes` or more behind them."""
    nbytes = 0
    for number in range(len(paths) - 1, 0, -1):
        nbytes += recipe.size(disk, paths[number])
        if nbytes >= keep_bytes:
            return number
    return 0
