"""Places: where a sealed snapshot lies, and how its files are read there.

A place is a local directory, or the URL of a directory in an object store. It creates no file and reads only what the
caller asks for. snapshot/sealed.py reads a snapshot through a place.

`hold` is the lease of a local snapshot (snapshot/lease.py). At a URL it does nothing, because prune works on local
directories only.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

from tidelog.disk.interface import Disk, File
from tidelog.disk.plain import NotPlain
from tidelog.disk.real import RealDisk
from tidelog.snapshot import lease
from tidelog.snapshot.errors import SnapshotDamaged
from tidelog.snapshot.remote import RemotePlace

LOCAL_READ_BYTES: Final = 4096
FILE_URL: Final = "file://"


class Place(Protocol):
    """Where a snapshot lies. The caller must `close` it. Not safe for use by several threads at once.

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
    """A directory. Its files stay open until `close`, so they stay readable even if the snapshot is deleted."""

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

    def hold(self) -> AbstractContextManager[None]:
        return lease.hold(self.disk, self.path)

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
    """The place at a path, or at a URL with a scheme. Raises SnapshotRefused for a wrong URL, and PackageMissing."""
    return RemotePlace(os.fspath(path)) if is_url(path) else LocalPlace(RealDisk(), local(path))


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether this is the URL of something that is not a local file."""
    return isinstance(path, str) and "://" in path and not path.startswith(FILE_URL)


def local(path: str | os.PathLike[str]) -> Path:
    """The local path for a path or a file:// URL."""
    text = os.fspath(path)
    return Path(unquote(text.removeprefix(FILE_URL))) if text.startswith(FILE_URL) else Path(text)
