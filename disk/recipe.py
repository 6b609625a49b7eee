"""How a file appears: write it beside, fsync, rename, fsync the directory; and goes. Written once, here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelog.disk.interface import Disk, File

BESIDE = ".new"  # the suffix of a file not yet published; a crash may leave one, it means nothing


def publish(disk: Disk, path: Path, data: bytes) -> None:
    """Create or replace `path` with `data`, wholly and durably or not at all. Raises OSError."""
    beside = path.with_name(path.name + BESIDE)
    file = disk.create(beside)
    try:
        file.write(0, data)
        publish_open(disk, file, path)
    finally:
        file.close()


def publish_pieces(
    disk: Disk, path: Path, nbytes: int, pieces: Iterable[tuple[int, bytes]]
) -> None:
    """The same for a file of `nbytes` that comes in pieces, (offset, bytes). Between them it is zeros, in holes."""
    beside = path.with_name(path.name + BESIDE)
    file = disk.create(beside)
    try:
        for offset, piece in pieces:
            if offset < nbytes:
                file.write(offset, piece[: nbytes - offset])
        file.extend(nbytes)
        publish_open(disk, file, path)
    finally:
        file.close()


def publish_open(disk: Disk, file: File, path: Path) -> None:
    """Give the open, filled `file` its final name. It may go on being written afterwards."""
    file.fsync()
    disk.rename(file.path, path)
    file.path = path
    disk.sync_directory(path.parent)


def remove(disk: Disk, path: Path) -> None:
    """Take a file away, durably: after a power cut it does not come back. Raises OSError."""
    disk.unlink(path)
    disk.sync_directory(path.parent)


def make_directory(disk: Disk, path: Path) -> None:
    """Create `path` durably. One that is there already may be an interrupted creation's: sync it too."""
    if not disk.exists(path):
        disk.mkdir(path)
    disk.sync_directory(path.parent)


def read(disk: Disk, path: Path, nbytes_max: int | None = None) -> bytes:
    """The whole of a file, or its beginning. A file in a store may be of any length: there, give a bound."""
    file = disk.open(path)
    try:
        size = file.size()
        return file.pread(size if nbytes_max is None else min(size, nbytes_max), 0)
    finally:
        file.close()


def size(disk: Disk, path: Path) -> int:
    """Bytes of a file."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
