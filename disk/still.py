"""Still: a disk on which one directory stands still, for readers beside a process that adds to it and deletes from it.

The names are those of one moment. The files stay open, so one that is deleted meanwhile can still be read; one that
grows can be read as far as it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from tidelog.disk.interface import Disk, File

HELD_MAX: Final = 256  # of the 1,024 descriptors that a process usually may have
_LISTS_MAX: Final = 100


@contextmanager
def stilled(
    disk: Disk, directory: Path, *, kept: Sequence[str] = (), nbytes: int = 0
) -> Iterator[Disk]:
    """The same disk, on which `directory` stands still inside the block. Only for reading.

    kept    names of small files whose first `nbytes` bytes are read now, before the directory is listed

    A file behind the first HELD_MAX is opened when it is read, and may then be gone. Raises OSError.
    """
    view = _StillDisk(disk, directory)
    try:
        view.take(kept, nbytes)
        yield cast(Disk, view)
    finally:
        view.drop()


class _StillDisk:
    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk, self._directory = disk, directory
        self._names: list[str] | None = None  # None: the directory cannot be listed
        self._files: dict[str, File] = {}
        self._kept: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def take(self, kept: Sequence[str], nbytes: int) -> None:
        for name in kept:
            if self._hold(name) and name in self._files:
                self._kept[name] = self._files[name].pread(nbytes, 0)
        for _ in range(_LISTS_MAX):
            try:
                names = self._disk.listdir(self._directory)
                held = all([self._hold(name) for name in names[:HELD_MAX]])
                again = self._disk.listdir(self._directory)
            except (FileNotFoundError, NotADirectoryError):
                return
            self._names = names
            # A large directory is listed in parts, so one listing may have a newer name and miss an older one.
            if held and set(again) <= set(names):
                break
        for name in self._files.keys() - set(names):
            self._files.pop(name).close()

    def _hold(self, name: str) -> bool:
        """Hold a file. False: it is gone."""
        if name not in self._files:
            try:
                self._files[name] = self._disk.open(self._directory / name)
            except FileNotFoundError:
                return False
            except OSError:
                pass  # a directory, a link: a caller that opens it meets the error
        return True

    def drop(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def listdir(self, path: Path) -> list[str]:
        if path != self._directory or self._names is None:
            return self._disk.listdir(path)
        return [*self._names]

    def exists(self, path: Path) -> bool:
        return self._is_held(path) or self._disk.exists(path)

    def open(self, path: Path, *, write: bool = False) -> File:
        if write or not self._is_held(path):
            return self._disk.open(path, write=write)
        return cast(File, _StillFile(self._files[path.name], self._kept.get(path.name)))

    def _is_held(self, path: Path) -> bool:
        return path.parent == self._directory and path.name in self._files


class _StillFile:
    """A file that stays open when a reader closes it."""

    def __init__(self, file: File, data: bytes | None) -> None:
        self._file, self._data = file, data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        if self._data is None:
            return self._file.pread(length, offset)
        return self._data[offset : offset + length]

    def close(self) -> None:
        pass
