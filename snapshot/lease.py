"""Leases: a reader keeps a snapshot from being pruned.

A lease is a shared flock on the snapshot's manifest.json. It creates no file, and a reader without the right to write
can have one. A prune deletes a snapshot only while it holds the same flock exclusively, and passes over the others. The
kernel ends a lease with the process that holds it, however the process ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import NotPlain
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotGone, SnapshotRefused
from tidelog.snapshot.manifest import NAME

WAIT_S = 60.0  # a prune holds the flock only while it renames the directory and deletes its files
POLL_S: Final = 0.01


@contextmanager
def hold(disk: Disk, directory: Path) -> Iterator[None]:
    """Hold a lease of the snapshot in `directory`. Raises SnapshotGone if it is not there (any more); OSError."""
    file = _held(disk, directory)
    try:
        yield
    finally:
        file.unlock()  # a forked child may still have the descriptor
        file.close()


def _held(disk: Disk, directory: Path) -> File:
    path = directory / NAME
    begun = time.monotonic()
    while True:
        try:
            file = disk.hold(path, shared=True)
            if file is not None and _is_at(disk, path, file):
                return file
        except NotPlain as error:
            raise SnapshotDamaged(directory, error.what) from None
        except (FileNotFoundError, NotADirectoryError):
            raise SnapshotGone(directory) from None
        if time.monotonic() - begun > WAIT_S:
            raise SnapshotRefused(
                f"{path}: another process has held an exclusive flock on this file for {WAIT_S:.0f} s. A prune "
                "does so only while it deletes the snapshot; find out which process it is"
            )
        time.sleep(POLL_S)


def _is_at(disk: Disk, path: Path, file: File) -> bool:
    """Whether `path` still leads to the held file. If not, a prune deleted the file before it was held; close it."""
    sound = False
    try:
        named = disk.open(path)
        try:
            sound = named.identity() == file.identity()
        finally:
            named.close()
    finally:
        if not sound:
            file.close()
    return sound


@contextmanager
def unleased(disk: Disk, directory: Path) -> Iterator[bool]:
    """Hold the snapshot exclusively within the context; False, if readers hold it. Raises OSError."""
    file = disk.hold(directory / NAME, shared=False)
    try:
        yield file is not None
    finally:
        if file is not None:
            file.unlock()
            file.close()
