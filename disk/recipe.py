"""The one way to publish a file: write it under another name, fsync, rename, fsync the directory. Also removal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import Kind

THREADS: Final = 8  # that sync files at the same time
Each = Callable[[Callable[[Any], object], Sequence[Any]], None]
BESIDE = ".new"  # suffix of an unpublished file; a crash may leave one, and readers ignore it


def publish(disk: Disk, path: Path, data: bytes) -> None:
    """Create or replace `path` with `data`, atomically and durably. Raises OSError."""
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
    """As `publish`, for a file of `nbytes` bytes given as (offset, bytes) pieces. The gaps between them are holes."""
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
    """Fsync the open `file` and give it its final name, durably. The caller may go on writing to it."""
    file.fsync()
    disk.rename(file.path, path)
    file.path = path
    disk.sync_directory(path.parent)


def publish_together(disk: Disk, files: Sequence[tuple[File, Path]], each: Each) -> None:
    """As `publish_open`, for many files: faster, because the syncs of many files share the work of the file system."""
    each(lambda pair: pair[0].fsync(), files)
    for file, path in files:
        disk.rename(file.path, path)
        file.path = path
    each(disk.sync_directory, sorted({path.parent for _, path in files}))


def in_threads(do: Callable[[Any], object], items: Sequence[Any]) -> None:
    """Call `do` with each item, a few at the same time. Raises what the first call that failed did."""
    if len(items) < 2:
        for item in items:
            do(item)
        return
    from concurrent.futures import ThreadPoolExecutor  # here: only exports need it

    with ThreadPoolExecutor(min(THREADS, len(items))) as pool:
        for _ in pool.map(do, items):
            pass


def remove(disk: Disk, path: Path) -> None:
    """Remove a file durably: it does not come back after a power cut. Raises OSError."""
    disk.unlink(path)
    disk.sync_directory(path.parent)


def move(disk: Disk, source: Path, target: Path) -> None:
    """Move a file or directory to another directory of the same file system, atomically and durably. Raises OSError."""
    disk.move(source, target)
    # The target first: no power cut may leave neither name, whatever a file system promises about both.
    disk.sync_directory(target.parent)
    disk.sync_directory(source.parent)


def remove_tree(disk: Disk, path: Path, first: Iterable[str] = ()) -> None:
    """Remove a directory with all that it contains. It may be missing. Raises OSError, NotPlain: a part is left.

    first   names in it that are removed, durably, before anything else
    """
    if disk.kind(path) is None:
        return
    for name in first:
        if disk.kind(path / name) is not None:
            remove(disk, path / name)
    for name in disk.listdir(path):
        if disk.kind(path / name) is Kind.DIRECTORY:
            remove_tree(disk, path / name)
        else:
            disk.unlink(path / name)
    disk.rmdir(path)


def make_directory(disk: Disk, path: Path) -> None:
    """Create the directory `path` durably. An existing one is synced too: its creation may have been interrupted."""
    if not disk.exists(path):
        disk.mkdir(path)
    disk.sync_directory(path.parent)


def read(disk: Disk, path: Path, nbytes_max: int | None = None) -> bytes:
    """The content of a file, or its first `nbytes_max` bytes. Limit it in a store, where files may have any length."""
    file = disk.open(path)
    try:
        size = file.size()
        return file.pread(size if nbytes_max is None else min(size, nbytes_max), 0)
    finally:
        file.close()


def size(disk: Disk, path: Path) -> int:
    """The length of a file in bytes."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
