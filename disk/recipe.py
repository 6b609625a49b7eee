"""How a file appears: write it beside, fsync, rename, fsync the directory; and goes. Written once, here."""

from __future__ import annotations

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


def read(disk: Disk, path: Path) -> bytes:
    """The whole of a file."""
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def size(disk: Disk, path: Path) -> int:
    """Bytes of a file."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
