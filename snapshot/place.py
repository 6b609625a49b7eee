"""Places: where a sealed snapshot lies, and how its files are read there.

A place is a local directory, or the URL of one in an object store. It only reads, creates no file, and reads no more
than it is asked for. snapshot/sealed.py reads a snapshot over it.

`hold` is the lease of a snapshot: a shared flock on its manifest.json. A prune deletes only snapshots whose flock it
gets exclusively. The kernel ends the lease when its process dies. A URL has no lease, because prune works on local
directories only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import NotPlain
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotGone
from tidelog.snapshot.manifest import NAME

LOCAL_READ_BYTES: Final = 4096
POLL_S: Final = 0.01


class Place(Protocol):
    """Where a snapshot lies. `close` it. Not safe for use by several threads at once.

    name    the path or URL, for errors; without credentials
    least   the fewest bytes that are worth one read here
    """

    name: str
    least: int

    def size(self, file: str) -> int:
        """The size of a file in bytes. Raises FileNotFoundError, OSError, SnapshotError."""
        ...

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        """Read `nbytes` bytes; fewer only at the end of the file. Raises FileNotFoundError, OSError, SnapshotError."""
        ...

    def names(self) -> list[str]:
        """The names in the directory, sorted. Raises FileNotFoundError, NotADirectoryError, OSError, SnapshotError."""
        ...

    def hold(self) -> AbstractContextManager[None]:
        """Keep the snapshot from being pruned within the context. Raises SnapshotGone if it was pruned already."""
        ...

    def close(self) -> None: ...


class LocalPlace:
    """A directory. Its files stay open until `close`, so they can be read on even if the snapshot is deleted."""

    least = LOCAL_READ_BYTES

    def __init__(self, disk: Disk, path: Path) -> None:
        self.name = str(path)
        self.disk, self.path = disk, path
        self._files: dict[str, File] = {}
        disk.guard(path)

    def size(self, file: str) -> int:
        return self._file(file).size()

    def read_at(self, file: str, offset: int, nbytes: int) -> bytes:
        return self._file(file).pread(nbytes, offset)

    def names(self) -> list[str]:
        return self.disk.listdir(self.path)

    @contextmanager
    def hold(self) -> Iterator[None]:
        path = self.path / NAME
        file = self._held(path)
        try:
            yield
        finally:
            file.unlock()
            file.close()

    def _held(self, path: Path) -> File:
        while True:
            try:
                file = self.disk.hold(path, shared=True)
                if file is None:
                    # A prune holds the lock: it is removing the snapshot, or only checks whether anyone holds it.
                    time.sleep(POLL_S)
                    continue
                # A prune may have deleted the snapshot between the open and the flock.
                if self._leads_to(path, file):
                    return file
                file.close()
                raise FileNotFoundError
            except NotPlain as error:
                raise SnapshotDamaged(self.path, error.what) from None
            except (FileNotFoundError, NotADirectoryError):
                raise SnapshotGone(self.path) from None

    def _leads_to(self, path: Path, file: File) -> bool:
        named = self.disk.open(path)
        try:
            return named.identity() == file.identity()
        finally:
            named.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, name: str) -> File:
        file = self._files.get(name)
        if file is None:
            try:
                file = self._files[name] = self.disk.open(self.path / name)
            except NotPlain as error:
                raise SnapshotDamaged(self.path / name, error.what) from None
        return file


def place_of(path: str | os.PathLike[str]) -> Place:
    """The place at a path."""
    return LocalPlace(RealDisk(), Path(path))
